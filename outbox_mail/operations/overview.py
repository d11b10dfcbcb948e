"""How the outbox stands, at a cost that does not grow with the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from psycopg import Connection

from outbox_mail.mail.outbox import MAIL
from outbox_mail.operations.holds import Hold, list_holds
from outbox_mail.operations.processes import Process, list_processes
from outbox_mail.outbox.bounds import bounded
from outbox_mail.outbox.census import Counts, ages, count
from outbox_mail.outbox.status import Status

RECENT_FAILURES: Final = 10_000
TIMEOUT_SECONDS: Final = 10.0


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
        measured = ages(connection, MAIL)
        return Overview(
            at=measured.at,
            counts=count(connection, MAIL),
            oldest_due_pending_age_seconds=measured.oldest_due_pending_seconds,
            oldest_sending_age_seconds=measured.oldest_sending_seconds,
            failed_by_code=_failed_by_code(connection),
            holds=list_holds(connection),
            processes=list_processes(connection),
        )


def _failed_by_code(connection: Connection[Any]) -> dict[str, int]:
    rows = connection.execute(
        f"""SELECT error_code, count(*) FROM (SELECT m.error_code FROM {MAIL.table} m
                WHERE m.status = '{Status.FAILED}' ORDER BY m.failed_at DESC LIMIT {RECENT_FAILURES}) newest
            GROUP BY 1 ORDER BY 2 DESC, 1"""
    ).fetchall()
    return dict(rows)
