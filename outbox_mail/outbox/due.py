"""What the relay asks of the table: how much is out, what is due, what was lost on the way.

SQL as text on a psycopg connection; ``published_at`` and ``hold_id`` are all that is written, never a status. Every row
that a round looks at leaves the index of due rows in the same statement (published, parked under a hold, parked until
its turn) or by the ``expire`` that follows, so that no row is scanned again and again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, Final, NamedTuple
from uuid import UUID

from psycopg import Connection

from outbox_mail.names import Priority
from outbox_mail.outbox.columns import TURN_HOLD
from outbox_mail.outbox.status import Status
from outbox_mail.outbox.transitions import Outbox, hold_matches, is_head

REPAIR_LOCK: Final = 7_035_612
"""The advisory lock that rounds share until they commit, and that the repair after a broker's loss takes alone."""

RELAY_FRESH_SECONDS: Final = 60.0
"""A relay that made progress within this time is at work; longer than a round can last."""

# Subtracting from -infinity, which an INSERT by hand may bring, is an error before PostgreSQL 17.
_EARLIEST: Final = "0001-01-01T00:00:00Z"
_PENDING: Final = f"m.status = '{Status.PENDING}'"
_OUT: Final = f"{_PENDING} AND m.published_at IS NOT NULL"


class Out(NamedTuple):
    """How many rows of each priority are out, and how many relays share the window."""

    counts: Mapping[Priority, int]
    relays: int


class DueRow(NamedTuple):
    """One row to publish."""

    id: UUID
    priority: Priority
    age_seconds: float
    """Since it became due."""
    trace_context: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of the rows that one round looked at; ``rows`` are to be published before the commit."""

    rows: tuple[DueRow, ...]
    at: datetime | None
    """When the rows were marked, by the database's clock; None: no row was looked at."""
    looked_at: Mapping[Priority, int]
    held: int
    out_of_turn: int
    expired: int

    @property
    def total(self) -> int:
        """How many rows were looked at."""
        return sum(self.looked_at.values())


@cache
def _count_out_sql(outbox: Outbox) -> str:
    return f"""
        SELECT r.priority, (SELECT count(*) FROM (
            SELECT FROM {outbox.table} m
            WHERE {_OUT} AND m.priority = r.priority AND m.due_at <= now() LIMIT %(bound)s) counted),
            (SELECT count(*) FROM outbox_processes p
            WHERE p.kind = 'relay' AND p.progress_at > now() - make_interval(secs => %(fresh_seconds)s))
        FROM unnest(%(priorities)s::smallint[]) r(priority)"""


def count_out(connection: Connection[Any], outbox: Outbox, *, bound: int) -> Out:
    """Count what is out and not in a countdown, up to ``bound`` of each priority, and the relays at work.

    What another relay has taken and not committed yet is not seen.
    """
    rows = connection.execute(
        _count_out_sql(outbox),
        {
            "bound": bound,
            "priorities": [priority.value for priority in Priority],
            "fresh_seconds": RELAY_FRESH_SECONDS,
        },
    ).fetchall()
    return Out({Priority(priority): count for priority, count, _ in rows}, max(1, *(row[2] for row in rows)))


@cache
def _take_sql(outbox: Outbox) -> str:
    hold = f"SELECT h.id FROM outbox_holds h WHERE {hold_matches(outbox)} ORDER BY h.id LIMIT 1"
    return f"""
        WITH room AS (
            SELECT pg_advisory_xact_lock_shared({REPAIR_LOCK}), r.priority, r.places
            FROM unnest(%(priorities)s::smallint[], %(places)s::int[]) r(priority, places)),
        looked_at AS MATERIALIZED (
            SELECT d.* FROM room r CROSS JOIN LATERAL (
                SELECT m.id, m.priority, m.trace_context,
                    extract(epoch FROM now() - greatest(m.due_at, '{_EARLIEST}'))::float8 AS age,
                    CASE WHEN m.expires_at <= now() THEN 'expired'
                        WHEN EXISTS ({hold}) THEN 'held'
                        WHEN NOT {is_head(outbox)} THEN 'out_of_turn'
                        ELSE 'published' END AS fate
                FROM {outbox.table} m
                WHERE {_PENDING} AND m.published_at IS NULL AND m.hold_id IS NULL
                    AND m.priority = r.priority AND m.due_at <= now()
                ORDER BY m.due_at LIMIT r.places FOR UPDATE OF m SKIP LOCKED) d
            LIMIT %(limit)s),
        published AS (
            UPDATE {outbox.table} m SET published_at = now()
            WHERE m.id = ANY (ARRAY(SELECT l.id FROM looked_at l WHERE l.fate = 'published')) AND {_PENDING}),
        parked AS (
            UPDATE {outbox.table} m SET hold_id = ({hold})
            WHERE m.id = ANY (ARRAY(SELECT l.id FROM looked_at l WHERE l.fate = 'held')) AND {_PENDING}),
        behind AS (
            UPDATE {outbox.table} m SET hold_id = {TURN_HOLD}
            WHERE m.id = ANY (ARRAY(SELECT l.id FROM looked_at l WHERE l.fate = 'out_of_turn')) AND {_PENDING})
        SELECT l.fate, l.id, l.priority, l.age, l.trace_context, now() FROM looked_at l"""


def take(
    connection: Connection[Any], outbox: Outbox, room: Mapping[Priority, int], *, limit: int, provider: str | None
) -> Taken:
    """Look at up to ``limit`` due rows, the urgent first, up to ``room`` of each priority, and mark them.

    Call it in a transaction: the rows in ``Taken.rows`` are marked published, which must become true before the commit.
    Rows under a hold are parked under it, rows behind an unfinished one of their ordering key until their turn; expired
    ones are counted and left to ``transitions.expire``. Rows locked by somebody (another relay) are skipped. Shares
    ``REPAIR_LOCK`` until the transaction ends. ``provider`` decides which provider's holds apply; None: no provider's.
    """
    places = {priority: count for priority, count in sorted(room.items()) if count > 0}
    if not places:
        return Taken((), None, {}, 0, 0, 0)
    found = connection.execute(
        _take_sql(outbox),
        {
            "priorities": [priority.value for priority in places],
            "places": list(places.values()),
            "limit": limit,
            "provider": provider,
        },
    ).fetchall()
    fates = [row[0] for row in found]
    looked_at = dict.fromkeys(places, 0)
    for row in found:
        looked_at[Priority(row[2])] += 1
    return Taken(
        rows=tuple(
            DueRow(id_, Priority(priority), age, trace if isinstance(trace, dict) else None)
            for fate, id_, priority, age, trace, _ in found
            if fate == "published"
        ),
        at=found[0][5] if found else None,
        looked_at=looked_at,
        held=fates.count("held"),
        out_of_turn=fates.count("out_of_turn"),
        expired=fates.count("expired"),
    )


def _stale(seconds: str) -> str:
    return f"""{_OUT} AND m.priority = %(priority)s
        AND m.published_at < now() - make_interval(secs => {seconds})
        AND m.due_at < now() - make_interval(secs => {seconds})"""


def has_stale(connection: Connection[Any], outbox: Outbox, priority: Priority, *, seconds: float) -> bool:
    """Whether some row is out for longer than ``seconds`` since it was published and became due."""
    row = connection.execute(
        f"SELECT EXISTS (SELECT FROM {outbox.table} m WHERE {_stale('%(seconds)s')})",
        {"priority": priority.value, "seconds": seconds},
    ).fetchone()
    return bool(row and row[0])


def free_stale(
    connection: Connection[Any],
    outbox: Outbox,
    priority: Priority,
    *,
    seconds: float,
    published_before: datetime | None,
    limit: int,
) -> int:
    """Take back that rows are out which nobody claimed for ``seconds``: the relay publishes them again.

    Only those published before ``published_before``, when given: what was published later still waits in the broker.
    The longest out first, up to ``limit``; rows locked by somebody are left.
    """
    return connection.execute(
        f"""UPDATE {outbox.table} m SET published_at = NULL WHERE {_PENDING} AND m.id = ANY (ARRAY(
            SELECT m.id FROM {outbox.table} m
            WHERE {_stale("%(seconds)s")} AND m.published_at < coalesce(%(before)s::timestamptz, 'infinity')
            ORDER BY m.published_at LIMIT %(limit)s FOR UPDATE OF m SKIP LOCKED))""",
        {"priority": priority.value, "seconds": seconds, "before": published_before, "limit": limit},
    ).rowcount


def free_out(connection: Connection[Any], outbox: Outbox, *, limit: int) -> int:
    """Take back that rows are out, countdowns included, up to ``limit``, because the broker lost them.

    Rows that a worker is just claiming are left alone: it has their ids. A row that somebody else keeps locked is found
    by ``free_stale`` in the end.
    """
    return connection.execute(
        f"""UPDATE {outbox.table} m SET published_at = NULL WHERE {_PENDING} AND m.id = ANY (ARRAY(
            SELECT m.id FROM {outbox.table} m WHERE {_OUT} LIMIT %(limit)s FOR UPDATE OF m SKIP LOCKED))""",
        {"limit": limit},
    ).rowcount
