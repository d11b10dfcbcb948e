"""Reading what people type: times, durations, entities, names, and the one setting that most commands need."""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from outbox_mail.errors import ConfigurationError, UsageError

if TYPE_CHECKING:
    from psycopg import Connection

DATABASE_VARIABLE: Final = "OUTBOX_MAIL_DATABASE_URL"
TEMPLATES_VARIABLE: Final = "OUTBOX_MAIL_TEMPLATES"
_CONNECT_SECONDS: Final = 10
_DURATION: Final = re.compile(r"(\d{1,6})(s|m|min|h|d|w)")
_UNITS: Final = {"s": "seconds", "m": "minutes", "min": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def moment(name: str, typed: str | None) -> datetime | timedelta | None:
    """A duration (``90s``, ``15m``, ``2h``, ``7d``) or an ISO 8601 date or time, in UTC where it names no zone."""
    if typed is None:
        return None
    if found := _DURATION.fullmatch(typed.strip()):
        return timedelta(**{_UNITS[found[2]]: int(found[1])})
    try:
        read = datetime.fromisoformat(typed.strip())
    except ValueError:
        raise UsageError(
            name, f"{typed[:40]!r} is no time", "Write 15m, 2h, 7d, 2026-07-01 or 2026-07-01T09:30+03:00"
        ) from None
    return read if read.tzinfo else read.replace(tzinfo=UTC)


def entity(typed: str | None) -> tuple[str, str] | None:
    """``order:42`` as type and id."""
    if typed is None:
        return None
    kind, found, id_ = typed.partition(":")
    if not (kind and found and id_):
        raise UsageError("entity", f"{typed[:40]!r} is no entity", "Write its type and id: order:42")
    return kind, id_


def who(by: str | None) -> str:
    """Who acts: what was typed, else the account's name."""
    if by:
        return by
    try:
        return os.environ.get("USER") or getpass.getuser()
    except (KeyError, OSError, ImportError):
        raise UsageError("by", "this account has no name", "Say who you are: --by ayse") from None


def database_url() -> str:
    """From the environment alone, so that commands which need nothing else run without the other settings."""
    typed = os.environ.get(DATABASE_VARIABLE, "").strip()
    scheme, found, rest = typed.partition("://")
    if not found or scheme.partition("+")[0] not in {"postgresql", "postgres"}:
        problem = "must start with postgresql://" if typed else "is not set"
        raise ConfigurationError(f"{DATABASE_VARIABLE}: {problem}. Set it: postgresql://user:password@host:5432/name")
    return f"postgresql://{rest}"


def template_folders() -> list[Path]:
    """From the environment alone, as ``database_url``."""
    typed = os.environ.get(TEMPLATES_VARIABLE) or "templates"
    return [Path(folder.strip()) for folder in typed.split(",") if folder.strip()]


@contextmanager
def database() -> Iterator[Connection[Any]]:
    """A connection in autocommit that also works behind a transaction pooler."""
    import psycopg

    with psycopg.connect(
        database_url(),
        autocommit=True,
        prepare_threshold=None,
        connect_timeout=_CONNECT_SECONDS,
        application_name="outbox-mail",
    ) as connection:
        yield connection
