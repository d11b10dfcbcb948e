"""Due rows reach the broker, each once, marked in the same transaction."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from outbox_mail.names import DELIVER_TASK, Priority
from outbox_mail.outbox.signals import Failed, Published


def test_a_due_row_is_published_and_marked(relays: Any, broker: Any, rows: Any) -> None:
    (id_,) = rows.add()

    assert relays.once() == 1
    assert broker.ids() == [id_]
    assert rows.column("published_at", id_) is not None
    assert rows.column("status", id_) == "PENDING"


def test_a_published_row_is_not_published_again(relays: Any, broker: Any, rows: Any) -> None:
    rows.add()

    assert (relays.once(), relays.once()) == (1, 0)
    assert len(broker.ids()) == 1


def test_a_row_is_not_published_before_it_is_due(relays: Any, broker: Any, rows: Any) -> None:
    rows.add(due_in=3600)

    assert relays.once() == 0
    assert broker.all_ids() == []


@pytest.mark.parametrize("due_at", ["-infinity", "0044-03-15 BC"])
def test_a_row_that_was_due_before_all_time_is_published(
    relays: Any, broker: Any, rows: Any, connection: psycopg.Connection[Any], due_at: str
) -> None:
    (id_,) = rows.add()
    connection.execute("UPDATE email_messages SET due_at = %s WHERE id = %s", [due_at, id_])

    assert relays.once() == 1


def test_each_priority_has_its_queue_and_the_oldest_goes_first(relays: Any, broker: Any, rows: Any) -> None:
    expected = {priority: rows.add(5, priority=priority) for priority in reversed(Priority)}

    relays.once()

    assert {priority: broker.ids(priority) for priority in Priority} == expected


def test_the_message_is_celerys_own_and_carries_ids_only(relays: Any, broker: Any, rows: Any) -> None:
    trace = {"traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01"}
    rows.add(trace_context=Jsonb(trace), parameters=Jsonb({"secret": "never"}))

    relays.once()

    (message,) = broker.messages()
    assert message["headers"]["task"] == DELIVER_TASK
    assert message["headers"]["ignore_result"] is True
    assert message["headers"]["traceparent"] == trace["traceparent"]
    assert message["content-type"] == "application/json"
    assert message["properties"]["delivery_info"] == {"exchange": "", "routing_key": "mail.normal"}
    text = json.dumps(message)
    assert "never" not in text
    assert "example.com" not in text


@pytest.mark.parametrize(
    "hostile",
    [
        {"task": "os.system", "id": "mine"},
        {"traceparent": {"nested": 1}},
        {"traceparent": "x" * 100_000},
        {"tracestate": "a=b\r\nX: y"},
        {"baggage": "user=a@example.com"},
        ["not", "an", "object"],
        "text",
    ],
)
def test_a_hostile_trace_context_changes_nothing_in_the_message(
    relays: Any, broker: Any, rows: Any, hostile: Any
) -> None:
    (id_,) = rows.add(trace_context=Jsonb(hostile))

    relays.once()

    (message,) = broker.messages()
    assert broker.ids() == [id_]
    assert message["headers"]["task"] == DELIVER_TASK
    assert message["headers"]["id"] != "mine"
    assert not {"traceparent", "tracestate", "baggage"} & set(message["headers"])


def test_few_rows_get_a_task_each_and_a_backlog_is_packed(relays: Any, broker: Any, rows: Any) -> None:
    rows.add(3)
    relays.once(relay_ids_per_task=10)
    assert len(broker.messages()) == 3

    rows.add(400)
    relays.once(relay_ids_per_task=10)
    assert len(broker.messages()) == 3 + 40
    assert len(set(broker.ids())) == 403


def test_the_number_out_stays_within_the_window_of_each_priority(relays: Any, broker: Any, rows: Any) -> None:
    rows.add(500, priority=Priority.BULK)
    urgent = rows.add(3, priority=Priority.HIGH)

    relays.once(relay_window=100, relay_batch_size=70)

    assert len(broker.ids(Priority.BULK)) == 100
    assert broker.ids(Priority.HIGH) == urgent
    assert relays.once(relay_window=100, relay_batch_size=70) == 0


def test_a_claimed_row_makes_room_and_a_countdown_takes_none(
    relays: Any, broker: Any, rows: Any, connection: psycopg.Connection[Any]
) -> None:
    rows.add(200)
    relays.once(relay_window=100, relay_batch_size=100)
    connection.execute(
        """UPDATE email_messages SET due_at = now() + interval '1 hour'
            WHERE id IN (SELECT id FROM email_messages WHERE published_at IS NOT NULL LIMIT 30)"""
    )

    assert relays.once(relay_window=100, relay_batch_size=100) == 30


def test_a_transaction_that_commits_late_is_not_skipped(relays: Any, broker: Any, rows: Any, database_url: str) -> None:
    with psycopg.connect(database_url) as late:
        late.execute("INSERT INTO email_messages (\"to\", template) VALUES (ARRAY['a@example.com'], 'LATE')")
        rows.add(5)
        assert relays.once() == 5
        late.commit()

    assert relays.once() == 1
    assert rows.count("published_at IS NULL") == 0


def test_a_row_that_is_rolled_back_is_never_published(relays: Any, broker: Any, rows: Any, database_url: str) -> None:
    with psycopg.connect(database_url) as undecided:
        undecided.execute("INSERT INTO email_messages (\"to\", template) VALUES (ARRAY['a@example.com'], 'T')")
        assert relays.once() == 0
        undecided.rollback()

    assert relays.once() == 0
    assert broker.all_ids() == []


def test_an_expired_row_ends_failed_and_is_not_published(relays: Any, broker: Any, rows: Any) -> None:
    late = rows.add(5, expires_in=-1)
    fresh = rows.add(2, expires_in=3600)
    relay, signals = relays.make()

    relay.run_once()

    assert broker.ids() == fresh
    assert rows.count("status = 'FAILED' AND error_code = 'expired'") == 5
    assert {signal.message_id for signal in signals if isinstance(signal, Failed)} == set(late)


def test_many_expired_rows_are_no_obstacle(relays: Any, broker: Any, rows: Any) -> None:
    rows.add(450, expires_in=-1, due_in=-10)
    fresh = rows.add(3)

    relays.once(relay_batch_size=100)

    assert broker.ids() == fresh
    assert rows.count("status = 'FAILED'") == 450


def test_what_was_published_is_said_with_its_latency(relays: Any, rows: Any) -> None:
    rows.add(3, due_in=-60)
    relay, signals = relays.make()

    relay.run_once()

    (published,) = [signal for signal in signals if isinstance(signal, Published)]
    assert published.count == 3
    assert 60 <= published.oldest_age_seconds < 90
    assert published.republished == 0


def test_each_message_says_when_it_was_published_by_the_databases_clock(relays: Any, broker: Any, rows: Any) -> None:
    (id_,) = rows.add()
    relays.once()

    (message,) = broker.messages()
    stamp = datetime.fromtimestamp(message["properties"]["timestamp"], UTC)
    assert abs(stamp - rows.column("published_at", id_)) < timedelta(seconds=1)
