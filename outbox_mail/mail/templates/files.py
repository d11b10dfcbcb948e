"""Template files as they are on the disk now, and values made from them that follow their changes."""

from __future__ import annotations

import logging
import os
import stat
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Generic, TypeVar

from outbox_mail.errors import ErrorClass, TemplateError

logger = logging.getLogger(__name__)

T = TypeVar("T")

Signature = tuple[int, int, int]
"""Modification time (ns), size and inode: the inode tells a file that was replaced within one tick of the clock."""

_READS: Final = 3


@dataclass(frozen=True, slots=True)
class Timing:
    """When changes are looked for and taken over."""

    check_seconds: float = 1.0
    """The files of one template are looked at this often at most."""
    settle_seconds: float = 0.5
    """A file that changed less than this ago may still be being written: what was good before is used until then."""
    grace_seconds: float = 5.0
    """How long a change that does not even compile leaves the version before it in use."""


@dataclass(slots=True)
class Watch:
    """The files that something was made from, as they were then; None for one that was looked for and not there."""

    seen: dict[Path, Signature | None] = field(default_factory=dict)

    def look(self, path: Path) -> bool:
        """Whether the file is there, remembered."""
        signature = signature_of(path)
        self.seen[path] = signature
        return signature is not None

    def read(self, path: Path, max_bytes: int) -> str | None:
        """The file's text, or None when it is not there; remembered.

        The signature is the one from before the reading: if the file changes meanwhile, the next look sees it.
        """
        for _ in range(_READS):
            before = signature_of(path)
            self.seen[path] = before
            if before is None:
                return None
            data = _read(path, max_bytes)
            if data is not None and signature_of(path) == before:
                break
        if data is None:
            return None
        if len(data) > max_bytes:
            raise ValueError(f"it is larger than {max_bytes} bytes")
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise ValueError(f"it is not UTF-8 (byte {error.start})") from None

    def changed(self) -> list[Path]:
        """The files that are not as they were."""
        return [path for path, signature in list(self.seen.items()) if signature_of(path) != signature]


def signature_of(path: Path) -> Signature | None:
    """The file's signature; None when it is not there or no file. Raises ``TemplateError`` (transient) otherwise."""
    try:
        status = os.stat(path)  # noqa: PTH116 - twice as fast as Path.stat, and called for every file of a template
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise unreadable(path, error) from None
    return None if stat.S_ISDIR(status.st_mode) else (status.st_mtime_ns, status.st_size, status.st_ino)


def unreadable(path: Path, error: OSError) -> TemplateError:
    """The disk's fault, or its permissions': the message is not to blame."""
    return TemplateError(
        "template_unreadable",
        f"{str(path)!r} can't be read ({type(error).__name__}). Check the folder and its permissions",
        error_class=ErrorClass.TRANSIENT,
    )


def _read(path: Path, max_bytes: int) -> bytes | None:
    try:
        with path.open("rb") as file:
            return file.read(max_bytes + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable(path, error) from None


@dataclass(slots=True)
class _Made(Generic[T]):
    watch: Watch
    value: T | None
    error: TemplateError | None

    def result(self) -> T:
        if self.error is not None:
            # A new one each time: a raised exception gathers the frames of every thread that it passes.
            raise TemplateError(self.error.code, str(self.error), error_class=self.error.error_class)
        assert self.value is not None  # noqa: S101 - one of both is there
        return self.value


class Following(Generic[T]):
    """A value made from files, made again after they change. Safe for threads; none waits for another's check."""

    def __init__(self, make: Callable[[Watch], T], timing: Timing) -> None:
        self._make = make
        self._timing = timing
        self._lock = threading.Lock()
        self._made: _Made[T] | None = None
        self._check_at = 0.0
        self._failing_since: float | None = None

    def get(self) -> T:
        """The value as the files have it, at most ``check_seconds`` ago; raises the error that making it raised.

        A broken change leaves what was there before in use for ``grace_seconds``, then its error is raised, until the
        next change.
        """
        made = self._made
        if made is not None and time.monotonic() < self._check_at:
            return made.result()
        if not self._lock.acquire(blocking=made is None):
            assert made is not None  # noqa: S101 - else the lock was waited for
            return made.result()
        try:
            if time.monotonic() >= self._check_at or self._made is None:
                self._refresh()
                self._check_at = time.monotonic() + self._timing.check_seconds
            assert self._made is not None  # noqa: S101 - made by _refresh, or it raised
            return self._made.result()
        finally:
            self._lock.release()

    def _refresh(self) -> None:
        before = self._made
        if before is not None:
            changed = before.watch.changed()
            if not changed or (before.error is None and self._settling(changed)):
                return
        watch = Watch()
        try:
            made = _Made(watch, self._make(watch), None)
        except TemplateError as error:
            if error.error_class is not ErrorClass.PERMANENT:
                raise
            made = _Made(watch, None, error)
        if made.error is not None and before is not None and before.error is None:
            now = time.monotonic()
            if self._failing_since is None:
                self._failing_since = now
                logger.warning("template_reload_failed", extra={"code": made.error.code})
            if now - self._failing_since < self._timing.grace_seconds:
                return
        self._failing_since = None
        self._made = made

    def _settling(self, changed: list[Path]) -> bool:
        now = time.time()
        for path in changed:
            signature = signature_of(path)
            if signature is not None and 0 <= now - signature[0] / 1e9 < self._timing.settle_seconds:
                return True
        return False
