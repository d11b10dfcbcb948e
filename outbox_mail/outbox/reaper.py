"""Frees the rows whose worker was not heard of for longer than the lease."""

from __future__ import annotations

from typing import Any, Final

from psycopg import Connection

from outbox_mail.outbox import transitions
from outbox_mail.outbox.signals import Failed, Reaped, Signals
from outbox_mail.outbox.transitions import Outbox

_MAX_ROUNDS: Final = 100


def run_reaper(
    connection: Connection[Any],
    outbox: Outbox,
    signals: Signals,
    *,
    lease_seconds: float,
    max_reaps: int,
    batch_size: int,
) -> Reaped:
    """Reap in batches until one is not full, at most 100: each is one statement and a transaction of its own.

    Emits ``Failed`` for each row that was given up, after its commit, and ``Reaped`` for all together when there was
    anything, also when the database breaks off in the middle; the error then passes through. Several may run at once,
    each row is reaped by one of them; what a missed or broken run leaves is the next one's.
    """
    released = given_up = 0
    try:
        for _ in range(_MAX_ROUNDS):
            batch = transitions.reap(
                connection, outbox, lease_seconds=lease_seconds, max_reaps=max_reaps, limit=batch_size
            )
            released += batch.released
            given_up += len(batch.given_up)
            for letter in batch.given_up:
                signals.emit(Failed(letter.id, letter.kind, letter.error_code, letter.attempts))
            if batch.total < batch_size:
                break
    finally:
        reaped = Reaped(released, given_up)
        if released or given_up:
            signals.emit(reaped)
    return reaped
