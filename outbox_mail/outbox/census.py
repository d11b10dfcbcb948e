"""Counting and measuring an outbox at a cost that does not grow with the table."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from psycopg import Connection

from outbox_mail.names import Priority
from outbox_mail.outbox.columns import TURN_HOLD
from outbox_mail.outbox.status import Status
from outbox_mail.outbox.transitions import Outbox

EXACT_UP_TO: Final = 100_000

_PENDING: Final = f"m.status = '{Status.PENDING}'"
_NOT_OUT: Final = f"{_PENDING} AND m.published_at IS NULL AND m.hold_id IS NULL"
_PRIORITIES: Final = ", ".join(str(priority.value) for priority in Priority)


@dataclass(frozen=True, slots=True)
class Count:
    """A number of rows; ``estimated`` from the statistics of the index when there are very many."""

    rows: int
    estimated: bool = False


# Name → the rows, and the index that holds them and no other.
_BUCKETS: Final = {
    "due": (f"{_NOT_OUT} AND m.priority IN ({_PRIORITIES}) AND m.due_at <= now()", "due"),
    "scheduled": (f"{_NOT_OUT} AND m.priority IN ({_PRIORITIES}) AND m.due_at > now()", "due"),
    "out": (f"{_PENDING} AND m.published_at IS NOT NULL AND m.due_at <= now()", "out"),
    "countdown": (f"{_PENDING} AND m.published_at IS NOT NULL AND m.due_at > now()", "out"),
    "in_line": (f"m.hold_id = {TURN_HOLD}", "held"),
    "held": (f"m.hold_id > {TURN_HOLD}", "held"),
    "sending": (f"m.status = '{Status.SENDING}'", "locked"),
    "sent": (f"m.status = '{Status.SENT}'", "sent"),
    "failed": (f"m.status = '{Status.FAILED}'", "failed"),
}


PENDING_STATES: Final = ("due", "scheduled", "out", "countdown", "in_line", "held")


@dataclass(frozen=True, slots=True)
class Counts:
    """Rows by where they stand.

    PENDING is ``due`` (the relay's turn), ``scheduled`` (for a later time, retries included), ``out`` (its id is at the
    broker), ``countdown`` (a retry waits in Celery), ``in_line`` (an earlier one of its ordering key is unfinished), or
    ``held`` (parked by a hold).
    """

    due: Count
    scheduled: Count
    out: Count
    countdown: Count
    in_line: Count
    held: Count
    sending: Count
    sent: Count
    failed: Count

    def pending(self) -> dict[str, Count]:
        """PENDING by what it waits for."""
        return {name: getattr(self, name) for name in PENDING_STATES}

    def by_status(self) -> dict[Status, Count]:
        """Summed up to the four statuses."""
        parts = self.pending().values()
        pending = Count(sum(part.rows for part in parts), any(part.estimated for part in parts))
        return {
            Status.PENDING: pending,
            Status.SENDING: self.sending,
            Status.SENT: self.sent,
            Status.FAILED: self.failed,
        }


class Ages(NamedTuple):
    """By the database's clock; None where there is no such row."""

    at: datetime
    oldest_due_pending_seconds: float | None
    oldest_sending_seconds: float | None


def count(connection: Connection[Any], outbox: Outbox) -> Counts:
    """Count each bucket exactly up to ``EXACT_UP_TO`` rows, and estimate what is beyond."""
    columns = ", ".join(
        f"(SELECT count(*) FROM (SELECT FROM {outbox.table} m WHERE {condition} LIMIT {EXACT_UP_TO + 1}) b)"
        for condition, _ in _BUCKETS.values()
    )
    row = connection.execute(f"SELECT {columns}").fetchone() or (0,) * len(_BUCKETS)
    exact = dict(zip(_BUCKETS, row, strict=True))
    if max(exact.values()) <= EXACT_UP_TO:
        return Counts(**{name: Count(rows) for name, rows in exact.items()})
    entries = _index_entries(connection, outbox)
    counted = {}
    for name, (_, index) in _BUCKETS.items():
        rows = exact[name]
        if rows > EXACT_UP_TO:
            siblings = sum(exact[other] for other, (_, used) in _BUCKETS.items() if used == index and other != name)
            counted[name] = Count(max(rows, entries.get(index, 0) - siblings), estimated=True)
        else:
            counted[name] = Count(rows)
    return Counts(**counted)


def _index_entries(connection: Connection[Any], outbox: Outbox) -> dict[str, int]:
    """How many entries each partial index had at the last VACUUM or ANALYZE."""
    prefix = f"{outbox.table}_"
    rows = connection.execute(
        "SELECT relname, reltuples::bigint FROM pg_class WHERE oid = ANY (SELECT indexrelid FROM pg_index"
        " WHERE indrelid = to_regclass(%s))",
        [outbox.table],
    ).fetchall()
    return {name.removeprefix(prefix): entries for name, entries in rows}


def ages(connection: Connection[Any], outbox: Outbox) -> Ages:
    """Measure the oldest that waits and the oldest claim. Reads a few index entries."""
    due = " UNION ALL ".join(
        f"(SELECT m.due_at FROM {outbox.table} m WHERE {_NOT_OUT} AND m.priority = {priority.value}"
        " ORDER BY m.due_at LIMIT 1)"
        for priority in Priority
    )
    # Subtracting from -infinity is an error before PostgreSQL 17.
    (row,) = connection.execute(
        f"""SELECT now(), extract(epoch FROM now() - (
                SELECT min(greatest(due_at, '0001-01-01')) FILTER (WHERE due_at <= now()) FROM ({due}
                UNION ALL SELECT min(m.due_at) FROM {outbox.table} m WHERE {_PENDING} AND m.published_at IS NOT NULL
                ) oldest))::float8,
            extract(epoch FROM now() - (SELECT m.locked_at FROM {outbox.table} m
                WHERE m.status = '{Status.SENDING}' ORDER BY m.locked_at LIMIT 1))::float8"""
    ).fetchall()
    return Ages(*row)
