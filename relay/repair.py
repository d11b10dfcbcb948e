"""Noticing that the broker lost its contents, and publishing again what was in it.

The mark is random, names the run of the server it was left in, and stands in the broker and in the table. The broker
is whole if both are the same and the run still is that one: a flush takes the mark away, a restart or a fail-over
changes the run, whatever came back from a snapshot or a replica. ``docs/architecture/relay.md`` tells why so.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import uuid4

from psycopg import Connection

from outbox_mail.outbox import due, relay_state
from outbox_mail.outbox.transitions import Outbox
from relay.publisher import BrokerState, Publisher

_BATCH: Final = 5000


def is_whole(state: BrokerState, mark: str | None) -> bool:
    """Whether the broker still holds what was published since ``mark`` was left in it."""
    return mark is not None and state.mark == mark and (not state.run_id or mark.endswith(f"@{state.run_id}"))


def repair(connection: Connection[Any], outbox: Outbox, publisher: Publisher) -> tuple[int | None, str]:
    """If the broker's mark is not the table's, free everything that was out and leave a new mark.

    Returns how many rows were freed and the mark; None instead of a number when nothing was lost: another relay has
    repaired it, or this is the first start ever. One transaction, alone with ``REPAIR_LOCK``: no round is under way
    meanwhile, so that nothing published before the loss is overlooked, and of several relays one does it. Raises
    ``BrokerError`` and ``psycopg.Error``; nothing is changed then, but maybe the broker's mark.
    """
    with connection.transaction():
        relay_state.lock_for_repair(connection)
        known = relay_state.broker_mark(connection)
        state = publisher.state()
        if known is not None and is_whole(state, known):
            return None, known
        freed = 0
        while batch := due.free_out(connection, outbox, limit=_BATCH):
            freed += batch
        mark = f"{uuid4().hex}@{state.run_id}"
        publisher.leave_mark(mark)
        relay_state.exchange_mark(connection, known, mark)
    return (None if known is None else freed), mark
