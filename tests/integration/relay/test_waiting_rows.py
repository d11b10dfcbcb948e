"""Held rows and rows behind others of their key are met once, and come back by themselves."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
import pytest

from outbox_mail.mail.outbox import MAIL
from outbox_mail.outbox import transitions
from outbox_mail.outbox.columns import TURN_HOLD

Connection = psycopg.Connection[Any]


def hold(connection: Connection, scope: str, value: str = "", until: str | None = None) -> int:
    row = connection.execute(
        """INSERT INTO outbox_holds (scope, value, reason, held_by, until)
            VALUES (%s, %s, 'test', 'test', now() + %s::interval) RETURNING id""",
        [scope, value, until],
    ).fetchone()
    assert row is not None
    number: int = row[0]
    return number


def deliver(connection: Connection, id_: UUID) -> None:
    assert transitions.claim(connection, MAIL, id_, provider="memory") is not None
    assert transitions.accept(connection, MAIL, id_, provider="memory", provider_message_id=None)


def fail(connection: Connection, id_: UUID) -> None:
    claimed = transitions.claim(connection, MAIL, id_, provider="memory")
    assert claimed is not None
    failure = transitions.Failure("permanent", "smtp_550", "no such user")
    assert transitions.fail(connection, MAIL, id_, claimed["claims"], failure)


def test_only_the_head_of_an_ordering_key_is_published(relays: Any, broker: Any, rows: Any) -> None:
    first, *later = rows.add(5, ordering_key="order-1")
    other, *_ = rows.add(2, ordering_key="order-2")
    free = rows.add(1)

    relays.once()

    assert set(broker.ids()) == {first, other, *free}
    assert [rows.column("hold_id", id_) for id_ in later] == [TURN_HOLD] * 4


@pytest.mark.parametrize("finish", [deliver, fail])
def test_the_next_of_a_key_is_published_when_the_one_before_it_is_finished(
    relays: Any, broker: Any, rows: Any, connection: Connection, finish: Any
) -> None:
    expected = rows.add(4, ordering_key="order-1")
    for number, id_ in enumerate(expected, start=1):
        assert relays.once() == 1
        assert relays.once() == 0
        assert broker.ids() == expected[:number]
        finish(connection, id_)


def test_a_running_relay_keeps_the_order_within_a_key(
    relays: Any, broker: Any, rows: Any, connection: Connection, until_true: Any
) -> None:
    expected = rows.add(20, ordering_key="order-1")
    relays.start(relay_poll_seconds=30, relay_busy_poll_seconds=0.01)
    for number, id_ in enumerate(expected, start=1):
        until_true(lambda n=number: len(broker.ids()) == n)
        deliver(connection, id_)

    assert broker.ids() == expected


def test_thousands_behind_one_key_are_met_once_and_are_no_obstacle(
    relays: Any, broker: Any, rows: Any, connection: Connection
) -> None:
    first, *_ = rows.add(3000, ordering_key="order-1", due_in=-60)
    free = rows.add(3)
    relays.once()
    assert set(broker.ids()) == {first, *free}

    relay, _ = relays.make()
    round_ = relay._turn()
    relay._leave()

    assert round_.looked_at == 0
    assert rows.count(f"hold_id = {TURN_HOLD}") == 2999


def test_turns_come_for_more_keys_than_are_looked_at_in_one_go(
    relays: Any, broker: Any, rows: Any, connection: Connection, until_true: Any
) -> None:
    connection.execute(
        """INSERT INTO email_messages ("to", template, ordering_key, ordering_seq)
            SELECT ARRAY['a@example.com'], 'T', 'key-' || n / 2, nextval('outbox_turns_seq_seq')
            FROM generate_series(0, 1399) n"""
    )
    relays.once()
    assert len(broker.ids()) == 700
    for id_ in broker.ids():
        deliver(connection, id_)

    relays.start(relay_busy_poll_seconds=0.01)

    until_true(lambda: len(broker.ids()) == 1400)


def test_a_parked_row_waits_for_a_head_that_is_due_later(relays: Any, broker: Any, rows: Any) -> None:
    rows.add(1, ordering_key="order-1", due_in=3600)
    rows.add(1, ordering_key="order-1")

    assert relays.once() == 0
    assert broker.ids() == []


@pytest.mark.parametrize(
    ("scope", "value", "columns"),
    [
        ("all", "", {}),
        ("template", "HELD", {"template_": "HELD"}),
        ("tag", "slow", {"tags": ["slow", "other"]}),
        ("ordering_key", "order-1", {"ordering_key": "order-1"}),
        ("provider", "memory", {}),
    ],
)
def test_held_rows_are_parked_and_come_back_when_the_hold_is_lifted(
    relays: Any, broker: Any, rows: Any, connection: Connection, scope: str, value: str, columns: dict[str, Any]
) -> None:
    template = columns.pop("template_", None)
    (held,) = rows.add(1, **columns)
    if template:
        connection.execute("UPDATE email_messages SET template = %s WHERE id = %s", [template, held])
    number = hold(connection, scope, value)

    assert relays.once() == 0
    assert rows.column("hold_id", held) == number
    assert rows.column("attempt_count", held) == 0

    connection.execute("DELETE FROM outbox_holds")
    assert relays.once() == 1
    assert broker.ids() == [held]


def test_what_no_hold_covers_passes_by(relays: Any, broker: Any, rows: Any, connection: Connection) -> None:
    hold(connection, "template", "OTHER")
    hold(connection, "provider", "somebody-else")
    hold(connection, "tag", "slow")
    (free,) = rows.add(1, tags=["quick"])

    relays.once()

    assert broker.ids() == [free]


def test_a_hold_is_over_when_its_time_has_passed(
    relays: Any, broker: Any, rows: Any, connection: Connection, until_true: Any
) -> None:
    (held,) = rows.add()
    hold(connection, "all", until="1 second")
    relays.start(relay_poll_seconds=0.1)
    until_true(lambda: rows.column("hold_id", held) is not None)

    until_true(lambda: broker.ids() == [held])


def test_rows_under_a_second_hold_stay_parked_when_the_first_is_lifted(
    relays: Any, broker: Any, rows: Any, connection: Connection
) -> None:
    (held,) = rows.add()
    first = hold(connection, "all")
    second = hold(connection, "template", "T")
    relays.once()
    assert rows.column("hold_id", held) == first

    connection.execute("DELETE FROM outbox_holds WHERE id = %s", [first])
    relays.once()

    assert broker.ids() == []
    assert rows.column("hold_id", held) == second


def test_many_held_rows_are_parked_in_batches_and_not_met_again(
    relays: Any, broker: Any, rows: Any, connection: Connection
) -> None:
    rows.add(1000, due_in=-60)
    hold(connection, "template", "T")
    connection.execute("INSERT INTO email_messages (\"to\", template) VALUES (ARRAY['a@example.com'], 'FREE')")

    assert relays.once(relay_batch_size=100) == 1
    assert rows.count("hold_id IS NOT NULL") == 1000

    relay, _ = relays.make()
    round_ = relay._turn()
    relay._leave()
    assert round_.looked_at == 0
