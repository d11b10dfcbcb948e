"""What an attachment's fields may be: one rule for producers, and for rows that were written by SQL alone.

Every check returns the value in its canonical form, or raises ``ValueError`` whose text completes "<field>: …".
"""

from __future__ import annotations

import mimetypes
import re
from typing import Final

MAX_FILENAME: Final = 200
DEFAULT_CONTENT_TYPE: Final = "application/octet-stream"

# Besides control characters, those that turn the direction of text: they make "exe" look like "pdf".
_UNSAFE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_NAME: Final = r"[A-Za-z0-9!#$&^_.+-]{1,100}"
_CONTENT_TYPE: Final = re.compile(rf"{_NAME}/{_NAME}(?:; ?{_NAME}={_NAME}){{0,5}}")
_CONTENT_ID: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._+@-]{0,198}[A-Za-z0-9])?")


def filename(value: object) -> str:
    """The name that the reader sees: any script, no folders."""
    value = _text(value)
    if not value.strip() or value.strip(".") == "":
        raise ValueError("it is empty")
    if len(value) > MAX_FILENAME:
        raise ValueError(f"it has {len(value)} characters, {MAX_FILENAME} are allowed")
    if _UNSAFE.search(value):
        raise ValueError("it has a line break, a control character or one that turns the direction of text")
    if "/" in value or "\\" in value:
        raise ValueError("it has a folder: only the last part of a path is a file's name")
    return value


def content_type(value: object) -> str:
    """A media type as in RFC 6838, with plain parameters: ``text/csv; charset=utf-8``."""
    value = _text(value)
    if not _CONTENT_TYPE.fullmatch(value):
        raise ValueError(f"{value[:80]!r} is no media type such as text/csv or application/pdf")
    # RFC 2046 forbids base64 in both, so they can't be carried as bytes.
    if value.lower().startswith(("multipart/", "message/")):
        raise ValueError(f"{value[:80]!r} can't be attached as a file")
    return value


def content_id(value: object) -> str:
    """What the HTML refers to as ``cid:…``, without angle brackets."""
    value = _text(value)
    if not _CONTENT_ID.fullmatch(value):
        raise ValueError("it has other characters than letters, digits, '.', '_', '+', '@' and '-'")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{type(value).__name__} is not text")  # noqa: TRY004 - one kind of error for callers
    return value


def guessed_content_type(name: str) -> str:
    """The media type that a file's name tells, as far as it can be attached."""
    guess, encoding = mimetypes.guess_type(name)
    if guess is None or encoding is not None or guess.startswith(("multipart/", "message/")):
        return DEFAULT_CONTENT_TYPE
    return guess
