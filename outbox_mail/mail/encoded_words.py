"""RFC 2047: text of any script in the ASCII of a header field, and the folding of fields (RFC 5322 §2.2.3)."""

from __future__ import annotations

import codecs
import re
import string
from binascii import b2a_base64
from collections.abc import Iterable
from typing import Final

LINE: Final = 76
"""Where lines of the head are folded when they can be, without their CRLF: RFC 5322 says 78, RFC 2047 §2 says 76."""
_WORD: Final = 75
_FRAME: Final = len("=?utf-8?q??=")
_LONGEST_CHARACTER: Final = 4 * len("=F0")

ENCODED_WORD: Final = re.compile(r"=\?([^?]*)\?[qQbB]\?.*?\?=")
"""What some reader takes for one, whether it is well made or not."""

_NO_CHARSETS: Final = frozenset({"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"})
"""Python decodes from these as well, one of them with warnings; no mail is written in them."""

# RFC 2047 §5 (3): what may stand as it is within a phrase may do so everywhere.
_SAFE: Final = (string.ascii_letters + string.digits + "!*+-/ ").encode()
_Q: Final = ["_" if byte == 0x20 else chr(byte) if byte in _SAFE else f"={byte:02X}" for byte in range(256)]


def encoded_words(text: str, column: int) -> list[str]:
    """``text`` as encoded words of UTF-8, each of 75 characters at most, to be parted by one space or folded.

    The first fits into a line that has ``column`` characters already, if one character does. No character is
    split between two words. Base64 or Q, whichever is shorter.
    """
    data = text.encode()
    room = LINE - column
    room = _WORD if room < _FRAME + _LONGEST_CHARACTER else min(room, _WORD)
    q_length = 3 * len(data) - 2 * (len(data) - len(data.translate(None, _SAFE)))
    return _base64_words(data, room) if (len(data) + 2) // 3 * 4 < q_length else _q_words(text, room)


def _base64_words(data: bytes, room: int) -> list[str]:
    words = []
    start = 0
    while start < len(data):
        end = start + (room - _FRAME) // 4 * 3
        if end < len(data):
            # A byte of the form 10xxxxxx continues a character.
            while data[end] & 0xC0 == 0x80:
                end -= 1
        words.append(f"=?utf-8?b?{b2a_base64(data[start:end], newline=False).decode()}?=")
        start = end
        room = _WORD
    return words


def _q_words(text: str, room: int) -> list[str]:
    words = []
    pieces: list[str] = []
    left = room - _FRAME
    for character in text:
        piece = _Q[ord(character)] if character < "\x80" else "".join([_Q[byte] for byte in character.encode()])
        if len(piece) > left:
            words.append(f"=?utf-8?q?{''.join(pieces)}?=")
            pieces = []
            left = _WORD - _FRAME
        pieces.append(piece)
        left -= len(piece)
    words.append(f"=?utf-8?q?{''.join(pieces)}?=")
    return words


def decoded_words(text: str) -> str:
    """``text`` with its encoded words decoded, as ``email.header`` does.

    What comes out may hold anything, line breaks too. Raises ``ValueError`` for a word that is broken, or whose charset
    is unknown.
    """
    # Both are loaded only when somebody writes encoded words, which is hardly ever.
    from email.errors import MessageError  # noqa: PLC0415
    from email.header import decode_header, make_header  # noqa: PLC0415

    if not all(_is_charset(word[1]) for word in ENCODED_WORD.finditer(text)):
        raise ValueError("an encoded word of an unknown charset")
    try:
        return str(make_header(decode_header(text)))
    except (MessageError, LookupError, ValueError):
        raise ValueError("a broken encoded word") from None


def _is_charset(name: str) -> bool:
    try:
        return codecs.lookup(name).name not in _NO_CHARSETS
    except (LookupError, ValueError):
        return False


def folded(name: str, tokens: Iterable[str]) -> str:
    """The field ``name: token token …`` with CRLF at its end, folded between tokens where a line would pass 76.

    Tokens are never broken, and the first stays in the line of the name: software that should know better has taken a
    name without a value for an empty field.
    """
    lines = []
    line = f"{name}:"
    empty = True
    for token in tokens:
        if len(line) + len(token) >= LINE and not empty:
            lines.append(line)
            line = ""
        line = f"{line} {token}"
        empty = False
    lines.append(line)
    lines.append("")
    return "\r\n".join(lines)
