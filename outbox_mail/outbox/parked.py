"""Giving parked rows back to the relay: when their hold is over, and when their turn has come."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from psycopg import Connection

from outbox_mail.outbox.columns import TURN_HOLD
from outbox_mail.outbox.status import Status
from outbox_mail.outbox.transitions import Outbox, is_head


class Turns(NamedTuple):
    """One look at the ordering keys that have parked rows."""

    freed: int
    keys: int
    """How many keys were looked at."""
    last_key: str | None
    """Where to go on; None: this was the end, begin anew."""


@cache
def _free_held_sql(outbox: Outbox) -> str:
    return f"""
        WITH RECURSIVE holds(id) AS (
            (SELECT m.hold_id FROM {outbox.table} m WHERE m.hold_id > {TURN_HOLD} ORDER BY m.hold_id LIMIT 1)
            UNION ALL
            SELECT (SELECT m.hold_id FROM {outbox.table} m WHERE m.hold_id > holds.id ORDER BY m.hold_id LIMIT 1)
            FROM holds WHERE holds.id IS NOT NULL)
        UPDATE {outbox.table} m SET hold_id = NULL
        WHERE m.status = '{Status.PENDING}' AND m.id = ANY (ARRAY(
            SELECT p.id FROM holds CROSS JOIN LATERAL (
                SELECT m.id FROM {outbox.table} m WHERE m.hold_id = holds.id
                LIMIT %(limit)s FOR UPDATE OF m SKIP LOCKED) p
            WHERE NOT EXISTS (SELECT FROM outbox_holds h WHERE h.id = holds.id AND (h.until IS NULL OR h.until > now()))
            LIMIT %(limit)s))"""


def free_held(connection: Connection[Any], outbox: Outbox, *, limit: int) -> int:
    """Free up to ``limit`` rows whose hold is gone or over; returns how many.

    Costs one look into the index for each hold that has rows, however many. Rows locked by somebody are left for the
    next call; rows that another hold covers are parked again when the relay meets them.
    """
    return connection.execute(_free_held_sql(outbox), {"limit": limit}).rowcount


@cache
def _free_turns_sql(outbox: Outbox) -> str:
    first = f"""SELECT m.id, m.ordering_key, m.ordering_seq FROM {outbox.table} m
        WHERE m.hold_id = {TURN_HOLD} AND m.ordering_key > {{after}} ORDER BY m.ordering_key, m.ordering_seq LIMIT 1"""
    # Not "=", or the planner might read all that is parked instead of one row by its id.
    still_parked = f"{{}}.hold_id IS NOT DISTINCT FROM {TURN_HOLD}"
    return f"""
        WITH RECURSIVE waiting(id, ordering_key, ordering_seq, number) AS (
            SELECT f.*, 1 FROM ({first.format(after="%(after)s")}) f
            UNION ALL
            SELECT f.*, w.number + 1 FROM waiting w CROSS JOIN LATERAL ({first.format(after="w.ordering_key")}) f
            WHERE w.number < %(keys)s),
        freed AS (
            UPDATE {outbox.table} m SET hold_id = NULL
            WHERE {still_parked.format("m")} AND m.status = '{Status.PENDING}' AND m.id = ANY (ARRAY(
                SELECT c.id FROM waiting m CROSS JOIN LATERAL (
                    SELECT c.id FROM {outbox.table} c WHERE c.id = m.id AND {still_parked.format("c")}
                    FOR UPDATE OF c SKIP LOCKED) c
                WHERE {is_head(outbox)}))
            RETURNING 1)
        SELECT (SELECT count(*) FROM freed), count(*), max(w.ordering_key) FROM waiting w"""


def free_turns(connection: Connection[Any], outbox: Outbox, *, keys: int, after: str | None = None) -> Turns:
    """Free the first parked row of each ordering key whose earlier ones are all finished.

    Looks at up to ``keys`` keys that have parked rows, one entry of an index each, in the order of the keys, going on
    behind ``after``. A call costs by the number of such keys, not by how many rows wait in them.
    """
    freed, looked_at, last = connection.execute(
        _free_turns_sql(outbox), {"keys": keys, "after": after or ""}
    ).fetchall()[0]
    return Turns(freed, looked_at, last if looked_at >= keys else None)
