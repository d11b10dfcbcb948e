"""Text and HTML as parts of a mail: line ends, characters that can't travel, the shortest safe transfer encoding."""

from __future__ import annotations

import re
from binascii import b2a_qp
from typing import Final

from outbox_mail.mail.compose.base64 import base64_size, write_base64
from outbox_mail.mail.compose.entity import Leaf

_LONGEST_LINE: Final = 998
# NUL and the other control characters but tab and line ends: clients cut the text there, or show what nobody meant.
_CONTROLS: Final = bytes(byte for byte in range(32) if byte not in b"\t\r\n") + b"\x7f"
_TO_SPACES: Final = bytes.maketrans(_CONTROLS, b" " * len(_CONTROLS))
_QP_SAFE: Final = bytes(byte for byte in range(32, 127) if byte != 0x3D) + b"\t\r\n"

# binascii writes 77 characters where a blank at a line's end has to be encoded.
_ONE_TOO_LONG: Final = re.compile(rb"(?m)^([^\r\n]{74})(=20|=09)(?=\r\n)")
_FROM_LINE: Final = re.compile(rb"(?m)^From ([^\r\n]*)")
_LINE: Final = 76


def text_leaf(subtype: str, text: str, boundary_stem: bytes) -> Leaf:
    """``text`` as a part ``text/subtype`` in UTF-8 that ends with a line end, whatever it is.

    Line ends of all three kinds become CRLF; control characters become spaces, lone surrogates question marks.
    7bit where the text is ASCII with lines of 998 at most; else quoted-printable or base64, whichever is shorter. Not
    7bit: a text with ``boundary_stem`` in it, or with a line that starts with ``From `` (mbox files change it).
    """
    # Bytes from here on: one emoji makes each copy of a text four times as large as its bytes.
    data = text.encode("utf-8", "replace").translate(_TO_SPACES)
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if not data.endswith(b"\n"):
        data += b"\n"
    data = data.replace(b"\n", b"\r\n")
    if _can_go_as_it_is(data, boundary_stem):
        return Leaf(_HEADS[subtype, "7bit"], data)
    unsafe = len(data.translate(None, _QP_SAFE))
    if base64_size(len(data)) < len(data) + 2 * unsafe:
        parts: list[bytes] = []
        write_base64(parts.append, data)
        parts.append(b"\r\n")
        return Leaf(_HEADS[subtype, "base64"], b"".join(parts))
    return Leaf(_HEADS[subtype, "quoted-printable"], _quoted_printable(data))


def _can_go_as_it_is(data: bytes, boundary_stem: bytes) -> bool:
    return (
        data.isascii()
        and boundary_stem not in data
        and not data.startswith(b"From ")
        and b"\nFrom " not in data
        and not _has_long_line(data)
    )


def _has_long_line(data: bytes) -> bool:
    # From line end to line end in the longest legal steps: a list of the lines would take many times the text's memory.
    longest = _LONGEST_LINE + len(b"\r\n")
    start = 0
    while len(data) - start > longest:
        start = data.rfind(b"\n", start, start + longest) + 1
        if start == 0:
            return True
    return False


def _quoted_printable(data: bytes) -> bytes:
    """RFC 2045 §6.7, lines of 76 at most. ``data`` ends with CRLF: from the first line end binascii learns its kind."""
    encoded = b2a_qp(data)
    if b" \r\n" in data or b"\t\r\n" in data:
        encoded = _ONE_TOO_LONG.sub(rb"\1=\r\n\2", encoded)
    if b"From " in encoded:
        encoded = _FROM_LINE.sub(_without_from, encoded)
    return encoded


def _without_from(found: re.Match[bytes]) -> bytes:
    rest = found[1]
    if len(b"=46rom ") + len(rest) <= _LINE:
        return b"=46rom " + rest
    return b"=46rom =\r\n" + _FROM_LINE.sub(_without_from, rest)


_HEADS: Final = {
    (subtype, encoding): (
        f"Content-Type: text/{subtype}; charset=utf-8\r\nContent-Transfer-Encoding: {encoding}\r\n".encode()
    )
    for subtype in ("plain", "html")
    for encoding in ("7bit", "quoted-printable", "base64")
}
