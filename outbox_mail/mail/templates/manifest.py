"""What a template says about itself, in ``template.toml`` beside its files."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

FILE_NAME: Final = "template.toml"

_LINE_BREAK: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


@dataclass(frozen=True, slots=True)
class Manifest:
    """A template's own settings; what is not there is left to the service's settings."""

    at_most_once: bool = False
    """``delivery = "at_most_once"``: an unknown outcome ends FAILED instead of being tried again."""
    max_attempts: int | None = None
    sender: str | None = None
    reply_to: tuple[str, ...] = ()
    schema_version: int | None = None
    """The newest shape of parameters that the template reads."""


def parse_manifest(text: str) -> Manifest:
    """Raises ``ValueError`` that names the key, or the line where the TOML is broken."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"it is not TOML: {error}") from None
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in _KEYS:
            raise ValueError(f"there is no key {key!r}. Use {', '.join(sorted(_KEYS))}")
        field, check = _KEYS[key]
        try:
            values[field] = check(value)
        except ValueError as problem:
            raise ValueError(f"{key}: {problem}") from None
    return Manifest(**values)


def _delivery(value: object) -> bool:
    if not isinstance(value, str) or value not in {"at_most_once", "at_least_once"}:
        raise ValueError("it is neither 'at_most_once' nor 'at_least_once'")
    return value == "at_most_once"


def _whole(most: int) -> Callable[[object], int]:
    def check(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise ValueError(f"it is not a whole number from 1 to {most}")
        return value

    return check


def _address(value: object) -> str:
    if not isinstance(value, str) or "@" not in value or len(value) > 500 or _LINE_BREAK.search(value):
        raise ValueError("it is not an address such as 'Shop <shop@example.com>'")
    return value.strip()


def _addresses(value: object) -> tuple[str, ...]:
    return tuple(_address(item) for item in (value if isinstance(value, list) else [value]))


_KEYS: Final[Mapping[str, tuple[str, Callable[[object], Any]]]] = {
    "delivery": ("at_most_once", _delivery),
    "max_attempts": ("max_attempts", _whole(100)),
    "sender": ("sender", _address),
    "reply_to": ("reply_to", _addresses),
    "schema_version": ("schema_version", _whole(32767)),
}
