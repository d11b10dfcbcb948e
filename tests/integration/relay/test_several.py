"""Several relays at once, and a deep backlog: nothing lost, nothing twice in a round, the bound kept."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterable
from typing import Any
from uuid import UUID

import psycopg
import redis

from outbox_mail.mail.outbox import MAIL
from outbox_mail.names import QUEUES, Priority
from outbox_mail.outbox import transitions
from outbox_mail.outbox.processes import report_progress
from outbox_mail.outbox.signals import Published


def test_two_relays_publish_every_row_once(relays: Any, broker: Any, rows: Any, until_true: Any) -> None:
    expected = rows.add(4000)
    both = [relays.start(relay_window=10_000, relay_batch_size=200) for _ in range(2)]

    until_true(lambda: rows.out() == 4000, seconds=30)

    assert sorted(broker.ids()) == sorted(expected)
    counts = [sum(s.count for s in running.signals if isinstance(s, Published)) for running in both]
    assert sum(counts) == 4000


def test_two_rounds_at_once_take_different_rows(relays: Any, broker: Any, rows: Any) -> None:
    """The second begins and ends while the first has published and not committed."""
    rows.add(20)
    relays.once(relay_batch_size=1, relay_window=1)
    slow, _ = relays.make(relay_batch_size=10)
    publish = slow._publisher.publish
    others: list[int] = []

    def publish_slowly(hints: Any, at: Any) -> Any:
        others.append(relays.once(relay_batch_size=50))
        return publish(hints, at)

    slow._publisher.publish = publish_slowly
    round_ = slow._turn()
    slow._leave()

    assert (round_.published, others) == (10, [9])
    assert len(broker.ids()) == len(set(broker.ids())) == 20


def test_the_bound_holds_while_20000_rows_pass_through_two_relays(
    relays: Any, rows: Any, redis_url: str, database_url: str, until_true: Any
) -> None:
    window = 400
    rows.add(18_000, priority=Priority.BULK)
    rows.add(2_000, priority=Priority.NORMAL)
    with psycopg.connect(database_url, autocommit=True) as connection:
        # Both are threads of one process here, which has one name.
        another_process(connection)
    for _ in range(2):
        relays.start(relay_window=window, relay_batch_size=100, relay_busy_poll_seconds=0.01)
    most: dict[Priority, int] = dict.fromkeys(Priority, 0)
    seen: list[UUID] = []
    with redis.Redis.from_url(redis_url) as client, psycopg.connect(database_url, autocommit=True) as connection:
        deadline = time.monotonic() + 90
        while len(seen) < 20_000:
            assert time.monotonic() < deadline
            for priority, queue in QUEUES.items():
                most[priority] = max(most[priority], len(ids_in(client.lrange(queue, 0, -1))))
            ids = ids_in(message for queue in QUEUES.values() for message in (client.rpop(queue, 20) or []))
            finish(connection, ids)
            seen.extend(ids)

    assert len(seen) == len(set(seen)) == 20_000
    assert most[Priority.BULK] <= window
    assert most[Priority.NORMAL] <= window


def another_process(connection: psycopg.Connection[Any]) -> None:
    """A relay at work on another machine."""
    report_progress(connection, "relay", "publishing")
    connection.execute("UPDATE outbox_processes SET name = 'relay@elsewhere:1', host = 'elsewhere'")


def ids_in(messages: Iterable[bytes]) -> list[UUID]:
    return [UUID(id_) for raw in messages for id_ in json.loads(base64.b64decode(json.loads(raw)["body"]))[0][0]]


def finish(connection: psycopg.Connection[Any], ids: list[UUID]) -> None:
    with connection.transaction():
        for id_ in ids:
            assert transitions.claim(connection, MAIL, id_, provider="memory") is not None
            transitions.accept(connection, MAIL, id_, provider="memory", provider_message_id=None)


def test_bulk_does_not_fill_the_place_of_urgent_mail(relays: Any, broker: Any, rows: Any) -> None:
    rows.add(1000, priority=Priority.BULK)
    relays.once(relay_window=100)
    urgent = rows.add(50, priority=Priority.HIGH)

    relays.once(relay_window=100)

    assert broker.ids(Priority.HIGH) == urgent
    assert len(broker.ids(Priority.BULK)) == 100


def test_urgent_mail_is_taken_before_a_bulk_backlog_that_is_older(relays: Any, broker: Any, rows: Any) -> None:
    rows.add(1000, priority=Priority.BULK, due_in=-3600)
    urgent = rows.add(5, priority=Priority.HIGH)
    relay, _ = relays.make(relay_batch_size=100)

    relay._turn()
    relay._leave()

    assert broker.ids(Priority.HIGH) == urgent
    assert len(broker.ids(Priority.BULK)) == 95


def test_places_are_kept_for_rounds_of_other_relays(
    relays: Any, broker: Any, rows: Any, connection: psycopg.Connection[Any]
) -> None:
    another_process(connection)
    rows.add(1000)

    relays.once(relay_window=500, relay_batch_size=100)

    assert len(broker.ids()) == 400
