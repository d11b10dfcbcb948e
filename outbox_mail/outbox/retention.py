"""Removes finished rows when they are old enough: deleted, or moved to the archive table."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

import psycopg
from psycopg import Connection

from outbox_mail.errors import UsageError
from outbox_mail.outbox.columns import STATUS_STAMPS
from outbox_mail.outbox.signals import Retained, Signals
from outbox_mail.outbox.status import RETAINED, Status
from outbox_mail.outbox.transitions import Outbox

PAUSE_SECONDS: Final = 0.05
MAX_SECONDS: Final = 100.0
_DAY_SECONDS: Final = 86_400


def sleep(seconds: float) -> bool:
    """Wait ``seconds``; False: go on then. A worker passes its event's ``wait`` instead, which says when to leave."""
    time.sleep(seconds)
    return False


@cache
def _remove_sql(outbox: Outbox, status: Status, archive: bool, also: str) -> str:
    stamp = STATUS_STAMPS[status]
    columns = ", ".join(f'"{column}"' for column in outbox.columns)
    latest = ", ".join(f'excluded."{column}"' for column in outbox.columns)
    # One that was brought back from the archive by hand replaces what is there: it must not stop all that follow.
    archived = f"""
        archived AS (
            INSERT INTO {outbox.archive} ({columns}) SELECT {columns} FROM removed
            ON CONFLICT (id) DO UPDATE SET ({columns}, archived_at) = ROW ({latest}, now())),"""
    # The lock that ``old`` takes keeps the status as it saw it. Asked for it again, the planner would with old
    # statistics read the whole partial index of that status instead of the primary key.
    return f"""
        WITH old AS MATERIALIZED (
            SELECT m.id FROM {outbox.table} m
            WHERE m.status = '{status}' AND m.{stamp} >= %(after)s
                AND m.{stamp} < now() - make_interval(secs => %(older_than_seconds)s)
            ORDER BY m.{stamp} LIMIT %(limit)s FOR UPDATE SKIP LOCKED),
        removed AS (
            DELETE FROM {outbox.table} m WHERE m.id = ANY (ARRAY(SELECT o.id FROM old o))
            RETURNING m.*),
        {archived if archive else ""}
        {also + "," if also else ""}
        counted AS (SELECT count(*) AS rows, max({stamp}) AS last_at FROM removed)
        SELECT rows, coalesce(last_at, '-infinity')::text FROM counted"""


def retain(
    connection: Connection[Any],
    outbox: Outbox,
    signals: Signals,
    *,
    status: Status,
    older_than_days: float,
    batch_size: int,
    archive: bool,
    pause_seconds: float = PAUSE_SECONDS,
    max_seconds: float = MAX_SECONDS,
    wait: Callable[[float], bool] = sleep,
    also: str = "",
    parameters: Mapping[str, Any] | None = None,
) -> int:
    """Remove rows that have been in ``status`` for longer than ``older_than_days``, the oldest first; returns how many.

    Each batch is one statement and a transaction of its own, which moves the rows to the archive when ``archive`` is
    set. Between batches there is a pause, by ``wait``, whose True ends the run, as ``max_seconds`` does. A batch that
    the server cancels for its time is tried again with half the rows. The failed attempts of a row go with it. ``also``
    is a CTE of the channel's that reads ``removed``, with its ``parameters``: what it writes is committed with the
    removal or not at all.

    Rows that are locked are left to the next run, so several may run at once; so is all that a missed or broken run
    did not do. Emits ``Retained`` when a row went, also when the database breaks off in the middle. Raises
    ``UsageError`` for a status that is never removed.
    """
    if status not in RETAINED:
        raise UsageError("status", f"{status} rows are never removed", f"Pass {' or '.join(sorted(RETAINED))}")
    give_up_at = time.monotonic() + max_seconds
    # Each batch reads on where the last one ended: what was removed stays in the index until a vacuum, and while some
    # long transaction holds that back, every batch would read through all of it again.
    after = "-infinity"
    total = 0
    sql = _remove_sql(outbox, status, archive, also)
    given = {**(parameters or {}), "older_than_seconds": older_than_days * _DAY_SECONDS}
    try:
        while True:
            try:
                row = connection.execute(sql, given | {"after": after, "limit": batch_size}).fetchone()
            except psycopg.errors.QueryCanceled:
                if batch_size == 1 or time.monotonic() >= give_up_at or wait(pause_seconds):
                    raise
                batch_size = max(1, batch_size // 2)
                continue
            count, after = row or (0, after)
            total += count
            if count < batch_size or time.monotonic() >= give_up_at or wait(pause_seconds):
                return total
    finally:
        if total:
            signals.emit(Retained(status, total, archive))
