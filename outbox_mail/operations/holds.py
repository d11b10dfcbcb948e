"""Pausing and resuming: what must wait without being at fault, and whose word that is."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from psycopg import Connection
from psycopg.rows import class_row

from outbox_mail.errors import NotFoundError, OutboxMailError, RefusedError, UsageError
from outbox_mail.mail.outbox import MAIL
from outbox_mail.operations.actions import MAX_NOTE_CHARS, who
from outbox_mail.operations.filters import Moment, aware, moment_parameters, moment_sql, storable
from outbox_mail.operations.scope import Scope
from outbox_mail.outbox.status import Status

__all__ = ["Hold", "Scope", "free", "list_holds", "pause", "resume", "target"]

FREE_BATCH: Final = 1000
_LOCKED_ROWS_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Hold:
    """One row of ``outbox_holds``."""

    id: int
    scope: str
    value: str
    reason: str
    held_by: str
    created_at: datetime
    until: datetime | None
    active: bool
    """False when ``until`` has passed: it holds nothing new, and the relay frees what it parked."""


_HOLD: Final = "id, scope, value, reason, held_by, created_at, until, until IS NULL OR until > now() AS active"


def list_holds(connection: Connection[Any]) -> list[Hold]:
    """All holds, the oldest first."""
    with connection.cursor(row_factory=class_row(Hold)) as cursor:
        return cursor.execute(f"SELECT {_HOLD} FROM outbox_holds ORDER BY id").fetchall()


def pause(
    connection: Connection[Any], scope: Scope, value: str = "", *, by: str, reason: str, until: Moment | None = None
) -> Hold:
    """Hold back all messages, or those of one template, provider, tag or ordering key.

    From its commit on no message it covers is claimed; those being sent are finished. Nothing counts as an attempt.
    Relay and workers park what they meet. ``until`` (a time, or a duration from now) lifts it by itself. A hold of
    the same target whose time is over is taken over with what it parked. Raises ``RefusedError`` when one is in force.
    """
    _check_target(scope, value)
    aware("until", until)
    parameters = {
        "scope": scope.value,
        "value": value,
        "reason": storable("reason", reason.strip(), most=MAX_NOTE_CHARS),
        "held_by": who(by),
        **moment_parameters("until", until, future=True),
    }
    with connection.cursor(row_factory=class_row(Hold)) as cursor:
        made = cursor.execute(
            f"""INSERT INTO outbox_holds AS h (scope, value, reason, held_by, until)
                VALUES (%(scope)s, %(value)s, %(reason)s, %(held_by)s, {moment_sql("until")})
                ON CONFLICT (scope, value) DO UPDATE SET reason = excluded.reason, held_by = excluded.held_by,
                    until = excluded.until, created_at = now() WHERE h.until <= now()
                RETURNING {_HOLD}""",
            parameters,
        ).fetchone()
    if made is None:
        raise RefusedError(f"{target(scope, value)} is paused already. See outbox-mail status; resume it first")
    return made


def resume(connection: Connection[Any], scope: Scope, value: str = "") -> int:
    """Lift a hold and free what it parked; returns how many messages that were.

    Frees them in batches, each a transaction of its own. When it is cut off, the hold is no longer in force, and
    calling it again goes on. Messages that another hold covers are parked again under that one when they are met.
    Raises ``NotFoundError`` when there is no such hold, ``OutboxMailError`` when rows stay locked by others for 10 s.
    """
    _check_target(scope, value)
    row = connection.execute(
        "UPDATE outbox_holds SET until = least(until, now()) WHERE scope = %s AND value = %s RETURNING id",
        [scope.value, value],
    ).fetchone()
    if row is None:
        raise NotFoundError(f"there is no hold on {target(scope, value)}. See outbox-mail status")
    freed = free(connection, row[0])
    # A worker whose statement began before the UPDATE may have parked one more row: the hold goes when none is left.
    connection.execute(
        f"""DELETE FROM outbox_holds h WHERE h.id = %(id)s AND h.until <= now()
            AND NOT EXISTS (SELECT FROM {MAIL.table} m WHERE m.hold_id = %(id)s AND m.hold_id IS NOT NULL)""",
        {"id": row[0]},
    )
    return freed


def free(connection: Connection[Any], hold_id: int) -> int:
    """Free all messages parked by a hold, in batches; returns how many."""
    freed = 0
    patience_ends_at = time.monotonic() + _LOCKED_ROWS_SECONDS
    while True:
        batch = connection.execute(
            f"""UPDATE {MAIL.table} m SET hold_id = NULL
                FROM (SELECT id FROM {MAIL.table} WHERE hold_id = %(id)s AND hold_id IS NOT NULL
                    LIMIT {FREE_BATCH} FOR UPDATE SKIP LOCKED) parked
                WHERE m.id = parked.id AND m.status = '{Status.PENDING}'""",
            {"id": hold_id},
        ).rowcount
        freed += batch
        if batch:
            patience_ends_at = time.monotonic() + _LOCKED_ROWS_SECONDS
            continue
        left = connection.execute(
            f"SELECT FROM {MAIL.table} WHERE hold_id = %(id)s AND hold_id IS NOT NULL LIMIT 1", {"id": hold_id}
        ).fetchone()
        if left is None:
            return freed
        if time.monotonic() > patience_ends_at:
            raise OutboxMailError(
                f"hold: {freed} messages were freed, others are locked by a transaction that does not end. "
                "Run outbox-mail doctor to find it, then resume again"
            )
        time.sleep(0.05)


def target(scope: Scope, value: str) -> str:
    """In words."""
    return "everything" if scope is Scope.ALL else f"{scope.value} {value!r}"


def _check_target(scope: Scope, value: str) -> None:
    if scope is Scope.ALL and value:
        raise UsageError("value", "the scope all takes none", "Leave it out")
    if scope is not Scope.ALL:
        storable("value", value)
