"""A sleeping relay is woken, a busy one is left in peace, and polling alone is enough."""

from __future__ import annotations

import json
import time
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from outbox_mail.mail.insert import insert_sql
from outbox_mail.names import DOORBELL_CHANNEL, Priority

Connection = psycopg.Connection[Any]


def ask(connection: Connection) -> UUID:
    """Insert one message with enqueue's own statement, which rings the doorbell."""
    id_ = uuid4()
    row = {"n": 0, "id": str(id_), "to": ["a@example.com"], "template": "T", "parameters": {}, "schema_version": 1}
    row["priority"] = Priority.NORMAL.value
    connection.execute(insert_sql("%s", keyed=False, ordered=False).encode(), [json.dumps([row])])
    return id_


def asleep(rows: Any) -> bool:
    found: bool = rows.value("SELECT coalesce((SELECT asleep FROM outbox_relay_state), false)")
    return found


def test_a_row_reaches_the_broker_at_once_though_the_next_poll_is_far(
    relays: Any, broker: Any, rows: Any, connection: Connection, until_true: Any
) -> None:
    relays.start(relay_poll_seconds=30)
    until_true(lambda: asleep(rows))

    for number in range(1, 6):
        ask(connection)
        until_true(lambda n=number: len(broker.ids()) == n, seconds=2)


def test_a_row_scheduled_for_later_does_not_ring(
    relays: Any, rows: Any, connection: Connection, database_url: str
) -> None:
    connection.execute("INSERT INTO outbox_relay_state (id, asleep) VALUES (1, true)")
    with psycopg.connect(database_url, autocommit=True) as listener:
        listener.execute(f"LISTEN {DOORBELL_CHANNEL}".encode())
        rows.add(due_in=3600)
        ask(connection)
        assert len(list(listener.notifies(timeout=2, stop_after=1))) == 1
        assert list(listener.notifies(timeout=0)) == []


def test_on_a_quiet_system_the_state_is_not_written_for_each_mail(
    relays: Any, broker: Any, rows: Any, connection: Connection, until_true: Any
) -> None:
    relays.start(relay_poll_seconds=30)
    until_true(lambda: asleep(rows))
    before = rows.value("SELECT xmin::text FROM outbox_relay_state")

    for number in range(1, 11):
        ask(connection)
        until_true(lambda n=number: len(broker.ids()) == n)
        time.sleep(0.02)

    assert rows.value("SELECT xmin::text FROM outbox_relay_state") == before


def test_nobody_rings_while_the_window_is_full(
    relays: Any, rows: Any, connection: Connection, database_url: str, until_true: Any
) -> None:
    rows.add(300)
    relays.start(relay_window=100, relay_poll_seconds=30, relay_busy_poll_seconds=0.5)
    until_true(lambda: rows.out() == 100)
    with psycopg.connect(database_url, autocommit=True) as listener:
        listener.execute(f"LISTEN {DOORBELL_CHANNEL}".encode())
        ask(connection)
        assert list(listener.notifies(timeout=0.3)) == []


def test_a_relay_that_leaves_does_not_let_producers_ring_for_nobody(relays: Any, rows: Any, until_true: Any) -> None:
    running = relays.start(relay_poll_seconds=30)
    until_true(lambda: asleep(rows))

    running.stop()

    assert not asleep(rows)


def test_a_relay_that_sleeps_on_is_rung_again_after_another_was_killed_awake(
    relays: Any, broker: Any, rows: Any, connection: Connection, until_true: Any
) -> None:
    relays.start(relay_poll_seconds=0.3)
    until_true(lambda: asleep(rows))
    connection.execute("UPDATE outbox_relay_state SET asleep = false")

    until_true(lambda: asleep(rows), seconds=5)


@pytest.mark.parametrize("changed", [{"relay_listen": False}, {"transaction_pooler": True}])
def test_polling_alone_is_enough(
    relays: Any, broker: Any, rows: Any, connection: Connection, until_true: Any, changed: dict[str, Any]
) -> None:
    relays.start(relay_poll_seconds=0.1, **changed)

    ids = [ask(connection) for _ in range(3)]

    until_true(lambda: sorted(broker.ids()) == sorted(ids))
    assert not asleep(rows)
    sessions = rows.value(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'outbox-mail relay' AND query ~* '^listen'"
    )
    assert sessions == 0


def test_a_relay_that_may_not_prepare_prepares_nothing(
    relays: Any, broker: Any, rows: Any, connection: Connection, until_true: Any
) -> None:
    relay, _ = relays.make(transaction_pooler=True)
    for _ in range(10):
        rows.add()
        relay._turn()

    assert relay._connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)
    assert len(broker.ids()) == 10
    relay._leave()


def test_new_mail_wakes_a_relay_whose_window_nobody_empties(
    relays: Any, broker: Any, rows: Any, connection: Connection, until_true: Any
) -> None:
    rows.add(50, priority=Priority.BULK)
    relays.start(relay_window=10, relay_batch_size=10, relay_poll_seconds=30, relay_busy_poll_seconds=0.01)
    until_true(lambda: rows.out() == 10 and asleep(rows))

    ask(connection)

    until_true(lambda: len(broker.ids(Priority.NORMAL)) == 1, seconds=2)
