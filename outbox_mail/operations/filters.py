"""Which messages an operation is about: conditions that people name, as SQL with parameters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from outbox_mail.errors import UsageError
from outbox_mail.outbox.status import Status

MAX_TEXT_CHARS: Final = 1000

Moment = datetime | timedelta
"""A point in time, or how long before now by the database's clock."""


@dataclass(frozen=True, slots=True)
class Filter:
    """All conditions hold together; None and empty leave one out. Checked when made: raises ``UsageError``."""

    status: Status | None = None
    template: str | None = None
    tag: str | None = None
    recipient: str | None = None
    """A bare address, in whatever case, among to, cc and bcc."""
    error_code: str | None = None
    ordering_key: str | None = None
    entity: tuple[str, str] | None = field(default=None)
    """Type and id."""
    created_since: Moment | None = None
    created_until: Moment | None = None

    def __post_init__(self) -> None:
        named = {
            "template": self.template,
            "tag": self.tag,
            "recipient": self.recipient,
            "error_code": self.error_code,
            "ordering_key": self.ordering_key,
            "entity": "".join(self.entity) if self.entity else None,
        }
        for name, value in named.items():
            if value is not None:
                storable(name, value)
        for name, moment in (("created_since", self.created_since), ("created_until", self.created_until)):
            aware(name, moment)

    def conditions(self) -> tuple[list[str], dict[str, Any]]:
        """SQL conditions on row ``m`` and their parameters."""
        found = list(self._conditions())
        parameters = {name: value for _, values in found for name, value in values.items()}
        return [condition for condition, _ in found], parameters

    def _conditions(self) -> Iterator[tuple[str, dict[str, Any]]]:
        if self.status:
            # As a constant: a parameter would hide the partial indexes from the planner.
            yield f"m.status = '{Status(self.status)}'", {}
        for column in ("template", "error_code", "ordering_key"):
            value = getattr(self, column)
            if value is not None:
                yield f"m.{column} = %({column})s", {column: value}
        if self.tag is not None:
            yield "%(tag)s = ANY (m.tags)", {"tag": self.tag}
        if self.recipient is not None:
            address = self.recipient.strip().lower()
            yield (
                """EXISTS (SELECT FROM unnest(m."to" || m.cc || m.bcc) a
                    WHERE lower(a) = %(recipient)s OR right(lower(a), %(suffix_length)s) = %(suffix)s)""",
                {"recipient": address, "suffix": f"<{address}>", "suffix_length": len(address) + 2},
            )
        if self.entity is not None:
            yield (
                "m.entity_type = %(entity_type)s AND m.entity_id = %(entity_id)s",
                {"entity_type": self.entity[0], "entity_id": self.entity[1]},
            )
        if self.created_since is not None:
            yield (
                f"m.created_at >= {moment_sql('created_since')}",
                moment_parameters("created_since", self.created_since),
            )
        if self.created_until is not None:
            yield (
                f"m.created_at < {moment_sql('created_until')}",
                moment_parameters("created_until", self.created_until),
            )


def moment_sql(name: str) -> str:
    """The SQL for a moment whose parameters ``moment_parameters`` makes."""
    return f"coalesce(%({name}_at)s::timestamptz, now() + %({name}_by)s::interval)"


def moment_parameters(name: str, moment: Moment | None, *, future: bool = False) -> dict[str, Any]:
    """The parameters of ``moment_sql``. A duration counts back from now, or ahead where ``future``."""
    if isinstance(moment, timedelta):
        return {f"{name}_at": None, f"{name}_by": moment if future else -moment}
    return {f"{name}_at": moment, f"{name}_by": None}


def aware(name: str, moment: Moment | None) -> None:
    """Raise ``UsageError`` for a time without a zone, or a duration below zero."""
    if isinstance(moment, datetime) and moment.tzinfo is None:
        raise UsageError(name, "it has no time zone", "Pass an aware datetime, such as datetime.now(UTC)")
    if isinstance(moment, timedelta) and moment < timedelta(0):
        raise UsageError(name, "it is below zero", "Pass a duration above zero")


def storable(name: str, text: str, *, most: int = MAX_TEXT_CHARS) -> str:
    """``text``, when PostgreSQL can hold it; else raises ``UsageError``."""
    if not text:
        raise UsageError(name, "it is empty", "Give a value or leave it out")
    if len(text) > most:
        raise UsageError(name, f"it has {len(text)} characters", f"{most} are allowed")
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise UsageError(name, "it holds NUL or is not valid UTF-8", "Give plain text")
    return text


def message_id(text: str) -> UUID:
    """A message's id from what a person typed. Raises ``UsageError``."""
    try:
        return UUID(text)
    except ValueError:
        shown = text if len(text) <= 60 else text[:60] + "…"
        raise UsageError(
            "id", f"{shown!r} is no message id", "It looks like 0190f5c2-….: copy it from a list"
        ) from None
