"""Keeps out of the logs what must not be there, in records of other libraries, too."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from itertools import islice
from typing import Any, Final

from outbox_mail.mail.providers.url import redact_url

HIDDEN: Final = "***"
MAX_CHARS: Final = 20_000
_MAX_DEPTH: Final = 5
_MAX_ITEMS: Final = 100

_SECRET_KEY: Final = re.compile(
    r"pass(word|wd|phrase)?$|secret|token|api_?key|authori[sz]ation|credential|cookie|dsn$", re.IGNORECASE
)
# Personal by their name, whatever they hold.
_PERSONAL_KEYS: Final = frozenset(
    {"to", "cc", "bcc", "recipient", "recipients", "address", "addresses", "email", "sender", "reply_to", "parameters"}
    | {"body", "html", "text", "subject", "headers", "data"}
)
_URL_SECRET: Final = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*://)[^\s/?#'\"@]*(?:@[^\s/?#'\"@]*)*@")
_PAIR_SECRET: Final = re.compile(
    r"((?:password|passwd|pwd|secret|token|api_?key|authorization)['\"]?\s*[=:]\s*)(?:'[^']*'|\"[^\"]*\"|(?:bearer\s+|basic\s+)?[^\s,;&'\"]+)",
    re.IGNORECASE,
)
_ADDRESS: Final = re.compile(r"[^\s<>\"'(),:;\[\]\\@/]+@(?=[^\s<>\"'(),;@]*\.[^\s<>\"'(),;@.])")
# PostgreSQL quotes whole rows there.
_DETAIL: Final = re.compile(r"^(DETAIL|CONTEXT): .*$", re.MULTILINE)


def redact_text(text: str) -> str:
    """``text`` without passwords in URLs and pairs, local parts of addresses, and rows that PostgreSQL quotes."""
    if len(text) > MAX_CHARS:
        text = f"{text[:MAX_CHARS]}… ({len(text)} characters)"
    if "DETAIL" in text or "CONTEXT" in text:
        text = _DETAIL.sub(rf"\1: {HIDDEN}", text)
    if "@" in text:
        text = _ADDRESS.sub(f"{HIDDEN}@", _URL_SECRET.sub(rf"\1{HIDDEN}@", text))
    return _PAIR_SECRET.sub(rf"\1{HIDDEN}", text)


def redact(value: Any, key: str = "", depth: int = 0) -> Any:
    """``value`` as a log may show it under ``key``: plain data, bounded in size and depth."""
    if key and (_SECRET_KEY.search(key) or key.lower() in _PERSONAL_KEYS):
        return HIDDEN
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping | list | tuple | set | frozenset):
        return "…" if depth >= _MAX_DEPTH else _redact_items(value, depth + 1)
    if isinstance(value, str) and key.lower().endswith("url"):
        return redact_url(value)
    return redact_text(_text(value))


def _redact_items(value: Mapping[Any, Any] | Collection[Any], depth: int) -> Any:
    if isinstance(value, Mapping):
        items = islice(value.items(), _MAX_ITEMS)
        return {redact_text(_text(name)): redact(item, _text(name), depth) for name, item in items}
    return [redact(item, "", depth) for item in islice(value, _MAX_ITEMS)]


def _text(value: object) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        return f"({len(value)} bytes)"
    try:
        return str(value)
    except Exception as error:  # noqa: BLE001 - a record must be written whatever an object's text raises
        return f"({type(value).__name__}, whose text raises {type(error).__name__})"
