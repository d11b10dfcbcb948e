"""The header fields that a producer may add to a mail, and what may stand in them.

Names are letters, digits, ``-``, ``_`` and ``.``, and none that the composer or mail servers write themselves. Values
are one line of text. What looks like an encoded word in a value never reaches a reader as anything but these
characters: fields of free text are encoded as a whole, and fields with a form of their own refuse it. One that hides a
line break or control character is refused everywhere, since somebody on the way may decode what no reader should.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from outbox_mail.errors import InvalidRequestError
from outbox_mail.mail.encoded_words import ENCODED_WORD, decoded_words

MAX_HEADERS: Final = 50
MAX_VALUE: Final = 4000
LONGEST_TOKEN: Final = 900
"""What can stand between two spaces: a line of a mail has 998 characters at most (RFC 5322 §2.1.1)."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,75}")
_UNSAFE: Final = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_SPACES: Final = re.compile(r"[ \t]+")
_ENCODED_WORD: Final = re.compile(r"=\?[^?]*\?[qQbB]\?")

_FROM_ROW: Final = "It is made from the row"
_BY_SERVERS: Final = "Mail servers write it"
_TAKEN: Final[Mapping[str, str]] = {
    "from": "Use the argument sender",
    "sender": "Use the argument sender",
    "reply-to": "Use the argument reply_to",
    "to": "Use the argument to",
    "cc": "Use the argument cc",
    "bcc": "Use the argument bcc",
    "apparently-to": "Use the argument bcc",
    "subject": "The template's subject.txt gives it",
    "date": "It is the time of enqueue, or send_at",
    "message-id": _FROM_ROW,
    "mime-version": _FROM_ROW,
    "received": _BY_SERVERS,
    "return-path": _BY_SERVERS,
    "delivered-to": _BY_SERVERS,
    "envelope-to": _BY_SERVERS,
    "x-original-to": _BY_SERVERS,
    "authentication-results": _BY_SERVERS,
    "dkim-signature": _BY_SERVERS,
    "domainkey-signature": _BY_SERVERS,
}
_TAKEN_BEGINNINGS: Final[Mapping[str, str]] = {
    "content-": "Parameters and attachments decide it",
    "resent-": "It belongs to mail that is forwarded",
    "arc-": _BY_SERVERS,
    "received-": _BY_SERVERS,
}

_IDS: Final = re.compile(r"<[^\s<>]+>(?: <[^\s<>]+>)*")
_URLS: Final = re.compile(r"<[^\s<>]+>(?: ?, ?<[^\s<>]+>)*")
_ANY: Final = re.compile(r".*")
_IDS_ADVICE: Final = "Write message ids in angle brackets, with spaces between them"
_URLS_ADVICE: Final = "Write URLs in angle brackets, with commas between them (RFC 2369)"
_ADDRESS_ADVICE: Final = "Write an address, with punycode for its domain"
_FORMS: Final[Mapping[str, tuple[re.Pattern[str], str]]] = {
    "in-reply-to": (_IDS, _IDS_ADVICE),
    "references": (_IDS, _IDS_ADVICE),
    "list-unsubscribe": (_URLS, _URLS_ADVICE),
    "list-unsubscribe-post": (re.compile("List-Unsubscribe=One-Click"), "Write List-Unsubscribe=One-Click (RFC 8058)"),
    "list-help": (_URLS, _URLS_ADVICE),
    "list-subscribe": (_URLS, _URLS_ADVICE),
    "list-owner": (_URLS, _URLS_ADVICE),
    "list-archive": (_URLS, _URLS_ADVICE),
    "list-post": (re.compile(f"NO|{_URLS.pattern}"), f"{_URLS_ADVICE}, or NO"),
    "list-id": (re.compile(r"(?:[^<>]* )?<[^\s<>]+>"), "Write the list's id in angle brackets (RFC 2919)"),
    # No ";" within a parameter: there must be one way to take a value apart, or a hostile one takes for ever.
    "auto-submitted": (re.compile(r"[a-z-]+(?:; ?[!-:<-~]+)*"), "Write auto-generated, auto-replied or no (RFC 3834)"),
    "disposition-notification-to": (_ANY, _ADDRESS_ADVICE),
    "return-receipt-to": (_ANY, _ADDRESS_ADVICE),
    "errors-to": (_ANY, _ADDRESS_ADVICE),
}
"""Fields that software reads: they go out as they are, never encoded, folded only at their spaces."""


class HeaderError(ValueError):
    """A header field that can't be sent. ``name`` is None where the whole mapping is at fault."""

    def __init__(self, name: str | None, problem: str, advice: str) -> None:
        super().__init__(f"{problem}. {advice}")
        self.name = name
        self.problem = problem
        self.advice = advice

    def place(self, field: str) -> str:
        """Where, when the mapping itself is called ``field``."""
        return field if self.name is None else f"{field}[{self.name[:80]!r}]"


def checked_headers(field: str, headers: object) -> dict[str, str]:
    """The fields as a row holds them: trimmed, runs of spaces and tabs as one space.

    Raises ``InvalidRequestError`` that names ``field`` and the header.
    """
    try:
        return checked(headers)
    except HeaderError as error:
        raise InvalidRequestError(error.place(field), error.problem, error.advice) from None


def checked(headers: object) -> dict[str, str]:
    """As ``checked_headers``, for whoever has another kind of error to raise. Raises ``HeaderError``."""
    if headers is None:
        return {}
    if not isinstance(headers, Mapping):
        raise HeaderError(None, f"{type(headers).__name__} is not a mapping", "Pass a dict of str to str")
    if len(headers) > MAX_HEADERS:
        raise HeaderError(None, f"there are {len(headers)}", f"Use {MAX_HEADERS} at most")
    fields: dict[str, str] = {}
    seen = set()
    for name, value in headers.items():
        _require_name(name)
        key = name.lower()
        if key in seen:
            raise HeaderError(name, "it is there twice, in another case", "Pass it once")
        seen.add(key)
        fields[name] = _value(name, key, value)
    return fields


def goes_as_it_is(name: str, value: str) -> bool:
    """Whether a checked field is ASCII that no reader takes for encoded words, with spaces enough to fold it."""
    if name.lower() in _FORMS:
        return True
    return value.isascii() and "=?" not in value and not _has_long_token(value)


def _require_name(name: object) -> None:
    if not isinstance(name, str):
        raise HeaderError(repr(name), f"a name that is {type(name).__name__}", "Use str")
    if not _NAME.fullmatch(name):
        raise HeaderError(
            name, "it is not the name of a header field", "Use letters, digits, '-', '_' and '.', 76 at most"
        )
    key = name.lower()
    advice = _TAKEN.get(key)
    if advice is None:
        advice = next((text for start, text in _TAKEN_BEGINNINGS.items() if key.startswith(start)), None)
    if advice is not None:
        raise HeaderError(name, "it can't be set here", advice)


def _value(name: str, key: str, value: object) -> str:
    if not isinstance(value, str):
        raise HeaderError(name, f"{type(value).__name__} is not text", "Pass a str")
    if len(value) > MAX_VALUE:
        raise HeaderError(name, f"it has {len(value)} characters", f"Use {MAX_VALUE} at most")
    if unsafe := _UNSAFE.search(value):
        raise HeaderError(
            name, f"it has a line break, control character or lone surrogate (U+{ord(unsafe[0]):04X})", "Remove it"
        )
    if "=?" in value and any(map(_hides, ENCODED_WORD.finditer(value))):
        raise HeaderError(
            name, "it has an encoded word that hides a line break or control character", "Pass plain Unicode text"
        )
    value = _SPACES.sub(" ", value).strip(" ")
    if not value:
        raise HeaderError(name, "it is empty", "Pass a value or leave it out")
    if form := _FORMS.get(key):
        pattern, advice = form
        if not value.isascii():
            raise HeaderError(name, "it has characters outside ASCII", advice)
        if _ENCODED_WORD.search(value) or not pattern.fullmatch(value):
            raise HeaderError(name, "it does not have this field's form", advice)
        if _has_long_token(value):
            raise HeaderError(name, f"it has more than {LONGEST_TOKEN} characters without a space", "Shorten it")
    return value


def _hides(word: re.Match[str]) -> bool:
    # A charset that is unknown here may be known to a reader; the ASCII characters of most are the same.
    for text in (word[0], word[0].replace(f"=?{word[1]}?", "=?latin-1?", 1)):
        try:
            return _UNSAFE.search(decoded_words(text)) is not None
        except ValueError:
            continue
    return False


def _has_long_token(value: str) -> bool:
    return len(value) > LONGEST_TOKEN and max(map(len, value.split(" "))) > LONGEST_TOKEN
