"""Base64 in lines of 76 (RFC 2045 §6.8), piece by piece, so that a large file is never there twice in between."""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Callable
from struct import Struct
from typing import Any, Final

_LINES: Final = 1024
_PIECE_BYTES: Final = 57 * _LINES
# Takes a piece apart into its lines in one call, which slicing in a loop is not.
_split: Final = Struct("76s" * _LINES).unpack


def base64_size(size: int) -> int:
    """How many bytes ``write_base64`` writes for ``size`` bytes, but for a line end."""
    encoded = (size + 2) // 3 * 4
    return encoded + 2 * (encoded // 76)


def write_base64(write: Callable[[bytes], Any], data: bytes) -> None:
    """Write ``data`` in base64, without a line end behind the last line."""
    view = memoryview(data)
    whole = len(data) - len(data) % _PIECE_BYTES
    for start in range(0, whole, _PIECE_BYTES):
        if start:
            write(b"\r\n")
        write(b"\r\n".join(_split(b2a_base64(view[start : start + _PIECE_BYTES], newline=False))))
    if whole < len(data):
        if whole:
            write(b"\r\n")
        encoded = b2a_base64(view[whole:], newline=False)
        write(b"\r\n".join([encoded[at : at + 76] for at in range(0, len(encoded), 76)]))
