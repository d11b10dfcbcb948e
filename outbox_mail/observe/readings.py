"""One look at the table for its gauges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from psycopg import Connection

from outbox_mail.mail.outbox import MAIL
from outbox_mail.outbox.bounds import bounded
from outbox_mail.outbox.census import ages, count

Reading = Mapping[str, Mapping[tuple[str, ...], float]]
"""Gauge → labels → value."""

SCOPES = ("all", "template", "provider", "tag", "ordering_key")
KINDS = ("relay", "worker", "beat")


def read(connection: Connection[Any], *, stale_seconds: float, timeout_seconds: float) -> Reading:
    """Every gauge's values but ``outbox_mail_table_up``. Raises what the driver raises, or ``OutboxMailError``."""
    with bounded(connection, timeout_seconds, advice="Scrape less often, or see outbox-mail doctor"):
        counts = count(connection, MAIL)
        measured = ages(connection, MAIL)
        return {
            "outbox_mail_oldest_due_pending_age_seconds": {(): measured.oldest_due_pending_seconds or 0.0},
            "outbox_mail_oldest_sending_age_seconds": {(): measured.oldest_sending_seconds or 0.0},
            "outbox_mail_messages": {
                (status.value,): float(number.rows) for status, number in counts.by_status().items()
            },
            "outbox_mail_pending": {(state,): float(number.rows) for state, number in counts.pending().items()},
            "outbox_mail_hold_active": _holds(connection),
            "outbox_mail_processes": _processes(connection, stale_seconds),
        }


def _holds(connection: Connection[Any]) -> dict[tuple[str, ...], float]:
    # Zeros, too: an alert on a series that is not there never fires and never ends.
    found = {(scope, flag): 0.0 for scope in SCOPES for flag in ("true", "false")}
    rows = connection.execute(
        """SELECT scope, starts_with(lower(reason), 'maintenance'), count(*) FROM outbox_holds
            WHERE until IS NULL OR until > now() GROUP BY 1, 2"""
    ).fetchall()
    return found | {(scope, "true" if maintenance else "false"): float(number) for scope, maintenance, number in rows}


def _processes(connection: Connection[Any], stale_seconds: float) -> dict[tuple[str, ...], float]:
    found = {(kind, state): 0.0 for kind in KINDS for state in ("alive", "stale")}
    rows = connection.execute(
        """SELECT kind, progress_at < now() - make_interval(secs => %s), count(*) FROM outbox_processes
            WHERE kind = ANY (%s) GROUP BY 1, 2""",
        [stale_seconds, list(KINDS)],
    ).fetchall()
    return found | {(kind, "stale" if stale else "alive"): float(number) for kind, stale, number in rows}
