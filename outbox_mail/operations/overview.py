"""How the outbox stands, at a cost that does not grow with the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from psycopg import Connection

from outbox_mail.mail.outbox import MAIL
from outbox_mail.names import Priority
from outbox_mail.operations.bounds import bounded
from outbox_mail.operations.holds import Hold, list_holds
from outbox_mail.operations.processes import Process, list_processes
from outbox_mail.outbox.status import Status

EXACT_UP_TO: Final = 100_000
RECENT_FAILURES: Final = 10_000
TIMEOUT_SECONDS: Final = 10.0

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
    "held": ("m.hold_id IS NOT NULL", "held"),
    "sending": (f"m.status = '{Status.SENDING}'", "locked"),
    "sent": (f"m.status = '{Status.SENT}'", "sent"),
    "failed": (f"m.status = '{Status.FAILED}'", "failed"),
}


@dataclass(frozen=True, slots=True)
class Counts:
    """Rows by where they stand.

    PENDING is ``due`` (the relay's turn), ``scheduled`` (for a later time, retries included), ``out`` (its id is at the
    broker), ``countdown`` (a retry waits in Celery), or ``held`` (parked by a hold).
    """

    due: Count
    scheduled: Count
    out: Count
    countdown: Count
    held: Count
    sending: Count
    sent: Count
    failed: Count

    def by_status(self) -> dict[Status, Count]:
        """Summed up to the four statuses."""
        parts = (self.due, self.scheduled, self.out, self.countdown, self.held)
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


@dataclass(frozen=True, slots=True)
class Overview:
    """How things stand. Ages are in seconds by the database's clock; None where there is no such row."""

    at: datetime
    counts: Counts
    oldest_due_pending_age_seconds: float | None
    """Held messages don't count: somebody wanted them to wait."""
    oldest_sending_age_seconds: float | None
    failed_by_code: Mapping[str, int]
    """Of the newest 10,000 FAILED."""
    holds: Sequence[Hold]
    processes: Sequence[Process]


def overview(connection: Connection[Any]) -> Overview:
    """Count and measure. Reads partial indexes only, a bounded number of entries of each; locks nothing.

    Raises ``OutboxMailError`` when the database needs longer than 10 s for one of the questions.
    """
    with bounded(connection, TIMEOUT_SECONDS, advice="See what keeps the database busy: outbox-mail doctor"):
        measured = ages(connection)
        return Overview(
            at=measured.at,
            counts=count(connection),
            oldest_due_pending_age_seconds=measured.oldest_due_pending_seconds,
            oldest_sending_age_seconds=measured.oldest_sending_seconds,
            failed_by_code=_failed_by_code(connection),
            holds=list_holds(connection),
            processes=list_processes(connection),
        )


def count(connection: Connection[Any]) -> Counts:
    """Count each bucket exactly up to ``EXACT_UP_TO`` rows, and estimate what is beyond."""
    columns = ", ".join(
        f"(SELECT count(*) FROM (SELECT FROM {MAIL.table} m WHERE {condition} LIMIT {EXACT_UP_TO + 1}) b)"
        for condition, _ in _BUCKETS.values()
    )
    row = connection.execute(f"SELECT {columns}").fetchone() or (0,) * len(_BUCKETS)
    exact = dict(zip(_BUCKETS, row, strict=True))
    if max(exact.values()) <= EXACT_UP_TO:
        return Counts(**{name: Count(rows) for name, rows in exact.items()})
    entries = _index_entries(connection)
    counted = {}
    for name, (_, index) in _BUCKETS.items():
        rows = exact[name]
        if rows > EXACT_UP_TO:
            siblings = sum(exact[other] for other, (_, used) in _BUCKETS.items() if used == index and other != name)
            counted[name] = Count(max(rows, entries.get(index, 0) - siblings), estimated=True)
        else:
            counted[name] = Count(rows)
    return Counts(**counted)


def _index_entries(connection: Connection[Any]) -> dict[str, int]:
    """How many entries each partial index had at the last VACUUM or ANALYZE."""
    prefix = f"{MAIL.table}_"
    rows = connection.execute(
        "SELECT relname, reltuples::bigint FROM pg_class WHERE oid = ANY (SELECT indexrelid FROM pg_index"
        " WHERE indrelid = to_regclass(%s))",
        [MAIL.table],
    ).fetchall()
    return {name.removeprefix(prefix): entries for name, entries in rows}


def ages(connection: Connection[Any]) -> Ages:
    """Measure the oldest that waits and the oldest claim. Reads a few index entries."""
    due = " UNION ALL ".join(
        f"(SELECT m.due_at FROM {MAIL.table} m WHERE {_NOT_OUT} AND m.priority = {priority.value}"
        " ORDER BY m.due_at LIMIT 1)"
        for priority in Priority
    )
    # Subtracting from -infinity is an error before PostgreSQL 17.
    (row,) = connection.execute(
        f"""SELECT now(), extract(epoch FROM now() - greatest('0001-01-01'::timestamptz, (
                SELECT min(due_at) FILTER (WHERE due_at <= now()) FROM ({due}
                UNION ALL SELECT min(m.due_at) FROM {MAIL.table} m WHERE {_PENDING} AND m.published_at IS NOT NULL
                ) oldest)))::float8,
            extract(epoch FROM now() - (SELECT m.locked_at FROM {MAIL.table} m
                WHERE m.status = '{Status.SENDING}' ORDER BY m.locked_at LIMIT 1))::float8"""
    ).fetchall()
    return Ages(*row)


def _failed_by_code(connection: Connection[Any]) -> dict[str, int]:
    rows = connection.execute(
        f"""SELECT error_code, count(*) FROM (SELECT m.error_code FROM {MAIL.table} m
                WHERE m.status = '{Status.FAILED}' ORDER BY m.failed_at DESC LIMIT {RECENT_FAILURES}) newest
            GROUP BY 1 ORDER BY 2 DESC, 1"""
    ).fetchall()
    return dict(rows)
