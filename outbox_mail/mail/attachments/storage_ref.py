"""The grammar of a storage reference: ``file:///folder/name``, ``s3://bucket/folder/name``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Self

MAX_LENGTH: Final = 1024

_SCHEME: Final = re.compile(r"[a-z][a-z0-9]{0,19}")
# Control and bidirectional characters; what fsspec takes for a pattern; what a URL takes for a query, a fragment or
# an escape: a name that has none of them means the same to every store.
_FORBIDDEN: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff*?\[\]{}#%\\]")


@dataclass(frozen=True, slots=True)
class StorageRef:
    """A reference in its parts: (``s3``, (``a``, ``b``)) of ``s3://a/b``, (``file``, (``a``, ``b``)) of ``file:///a/b``.

    No part is empty, ``.`` or ``..``: joining them can't leave the folder they are under.
    """

    scheme: str
    parts: tuple[str, ...]

    @classmethod
    def parse(cls, text: object) -> Self:
        """Raises ``ValueError``, whose text completes "storage_ref: …", for everything that is not plain."""
        if not isinstance(text, str):
            raise ValueError(f"{type(text).__name__} is not text")  # noqa: TRY004 - one kind of error for callers
        if len(text) > MAX_LENGTH:
            raise ValueError(f"it has {len(text)} characters, {MAX_LENGTH} are allowed")
        if match := _FORBIDDEN.search(text):
            raise ValueError(f"it has the character U+{ord(match[0]):04X}, which some store would interpret")
        scheme, found, rest = text.partition("://")
        if not found or not _SCHEME.fullmatch(scheme):
            raise ValueError("it does not start with a store's name and '://'")
        if "::" in text or "://" in rest:
            raise ValueError("it chains several stores")
        if scheme == "file":
            if not rest.startswith("/"):
                raise ValueError("a file's path is absolute: file:///folder/name, with three slashes")
            rest = rest[1:]
        parts = tuple(rest.split("/"))
        if any(part in {"", ".", ".."} for part in parts):
            raise ValueError("a part of its path is empty, '.' or '..'")
        if "@" in parts[0] and scheme != "file":
            raise ValueError("it has a user or a password before '@'")
        return cls(scheme, parts)

    def __str__(self) -> str:
        return f"{self.scheme}://{'/' if self.scheme == 'file' else ''}{'/'.join(self.parts)}"

    def below(self, folder: StorageRef) -> tuple[str, ...] | None:
        """The parts of this reference within ``folder``, or None when it is not below it."""
        depth = len(folder.parts)
        if self.scheme != folder.scheme or len(self.parts) <= depth or self.parts[:depth] != folder.parts:
            return None
        return self.parts[depth:]

    def child(self, *parts: str) -> StorageRef:
        """The reference of a name within this folder."""
        return StorageRef(self.scheme, self.parts + parts)
