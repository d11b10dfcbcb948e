"""The parts of a mail as a tree (RFC 2046), written from top to bottom without copies in between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Write = Callable[[bytes], Any]


class Entity(Protocol):
    """A part: its own header lines, each with CRLF, and what follows the empty line behind them."""

    @property
    def head(self) -> bytes:
        """The content fields."""
        ...

    def write_body(self, write: Write) -> None:
        """Write the body, encoded."""
        ...


@dataclass(frozen=True, slots=True)
class Leaf:
    """A part whose encoded body is there already."""

    head: bytes
    body: bytes

    def write_body(self, write: Write) -> None:
        """Write the body."""
        write(self.body)


class Multipart:
    """Parts between boundaries. No part's encoded body may have a line that starts with ``--`` and the boundary."""

    __slots__ = ("_boundary", "_parts", "head")

    def __init__(self, kind: str, boundary: str, parts: Sequence[Entity]) -> None:
        """``kind`` is the subtype with its parameters, such as ``related; type="text/html"``."""
        self.head = f'Content-Type: multipart/{kind};\r\n boundary="{boundary}"\r\n'.encode()
        self._boundary = boundary.encode()
        self._parts = parts

    def write_body(self, write: Write) -> None:
        """Write the parts, each behind the boundary, and the closing boundary."""
        opening = b"--%b\r\n" % self._boundary
        for part in self._parts:
            write(b"%b%b\r\n" % (opening, part.head))
            part.write_body(write)
            opening = b"\r\n--%b\r\n" % self._boundary
        write(b"\r\n--%b--\r\n" % self._boundary)
