"""A broker that is down, hangs, is full, or lost its contents costs delay and nothing else."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis

from outbox_mail.embedded import RedisServer
from outbox_mail.mail.outbox import MAIL
from outbox_mail.names import BROKER_MARK_KEY, QUEUES, Priority
from outbox_mail.outbox import transitions
from outbox_mail.outbox.signals import BrokerLost, Published, PublishFailed

Connection = psycopg.Connection[Any]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis server of the test's own."""
    with RedisServer(tmp_path / "redis", persistent=True) as made:
        yield made


@pytest.fixture
def own(relays: Any, server: RedisServer) -> Any:
    """Relays on that server."""
    relays.broker_url = server.url
    return relays


def queued(server: RedisServer) -> int:
    with redis.Redis.from_url(server.url) as client:
        return sum(client.llen(queue) for queue in QUEUES.values())


def lost(running: Any) -> list[int]:
    return [signal.freed for signal in running.signals if isinstance(signal, BrokerLost)]


def failures(running: Any) -> list[PublishFailed]:
    return [signal for signal in running.signals if isinstance(signal, PublishFailed)]


def test_a_broker_that_is_down_changes_no_row_and_the_relay_resumes(
    own: Any, server: RedisServer, rows: Any, until_true: Any
) -> None:
    server.kill()
    (id_,) = rows.add()
    running = own.start()
    until_true(lambda: len(failures(running)) >= 3)
    before = rows.value("SELECT to_jsonb(m)::text FROM email_messages m")

    assert rows.column("published_at", id_) is None
    assert rows.column("attempt_count", id_) == 0
    assert rows.value("SELECT to_jsonb(m)::text FROM email_messages m") == before
    waits = [failure.retry_in_seconds for failure in failures(running)]
    assert all(0 < wait <= 0.5 for wait in waits)

    server.start()
    until_true(lambda: queued(server) == 1)
    until_true(lambda: rows.out() == 1)


def test_no_message_of_a_failure_shows_the_brokers_password(
    own: Any, server: RedisServer, rows: Any, until_true: Any, caplog: pytest.LogCaptureFixture
) -> None:
    password = server.url.split(":")[2].split("@")[0]
    server.kill()
    own.broker_url = server.url
    running = own.start()
    until_true(lambda: failures(running))

    said = [failure.reason for failure in failures(running)] + [str(record.__dict__) for record in caplog.records]
    assert said
    assert not [text for text in said if password in text]


def test_a_broker_that_wants_another_password_is_waited_for(
    own: Any, server: RedisServer, rows: Any, until_true: Any
) -> None:
    own.broker_url = server.url.replace("redis://:", "redis://:wrong")
    rows.add()
    running = own.start()

    until_true(lambda: len(failures(running)) >= 2)
    assert rows.out() == 0


def test_a_broker_that_hangs_is_given_up_on_in_time(own: Any, server: RedisServer, rows: Any, until_true: Any) -> None:
    running = own.start(broker_timeout_seconds=0.5)
    rows.add()
    until_true(lambda: rows.out() == 1)
    os.kill(server.pid, signal.SIGSTOP)
    try:
        rows.add()
        until_true(lambda: failures(running), seconds=5)
        until_true(lambda: rows.out() == 1)
    finally:
        os.kill(server.pid, signal.SIGCONT)

    until_true(lambda: rows.out() == 2)


def test_a_broker_that_hangs_does_not_keep_the_relay_from_leaving(
    own: Any, server: RedisServer, rows: Any, until_true: Any
) -> None:
    running = own.start(broker_timeout_seconds=1)
    until_true(lambda: rows.value("SELECT count(*) FROM outbox_relay_state WHERE broker_mark IS NOT NULL"))
    os.kill(server.pid, signal.SIGSTOP)
    try:
        until_true(lambda: failures(running))
        started = time.monotonic()
        running.stop(seconds=5)
        assert time.monotonic() - started < 4
    finally:
        os.kill(server.pid, signal.SIGCONT)


def test_a_broker_without_memory_changes_no_row_and_gets_few_copies(
    own: Any, server: RedisServer, rows: Any, until_true: Any
) -> None:
    own.once()
    with redis.Redis.from_url(server.url) as client:
        client.config_set("maxmemory", "1")
        rows.add(200)
        running = own.start()
        until_true(lambda: len(failures(running)) >= 4)
        assert rows.out() == 0
        client.config_set("maxmemory", "0")

    until_true(lambda: rows.out() == 200)
    assert lost(running) == []


def test_the_first_start_ever_loses_nothing(own: Any, server: RedisServer, rows: Any, until_true: Any) -> None:
    rows.add()
    running = own.start()
    until_true(lambda: rows.out() == 1)

    assert lost(running) == []
    with redis.Redis.from_url(server.url) as client:
        mark = client.get(BROKER_MARK_KEY).decode()
    assert mark == rows.value("SELECT broker_mark FROM outbox_relay_state")


def test_what_a_flushed_broker_lost_is_published_again_once(
    own: Any, server: RedisServer, rows: Any, broker: Any, until_true: Any
) -> None:
    running = own.start(relay_ids_per_task=1)
    rows.add(300)
    until_true(lambda: rows.out() == 300)

    with redis.Redis.from_url(server.url) as client:
        client.flushall()

    until_true(lambda: queued(server) == 300, seconds=5)
    until_true(lambda: rows.out() == 300)
    assert lost(running) == [300]
    until_true(lambda: sum(s.count for s in running.signals if isinstance(s, Published)) == 600)


@pytest.mark.parametrize("comes_back_with_its_contents", [True, False])
def test_a_restarted_broker_gets_again_what_was_out(
    tmp_path: Path, relays: Any, rows: Any, until_true: Any, comes_back_with_its_contents: bool
) -> None:
    with RedisServer(tmp_path / "own", persistent=comes_back_with_its_contents) as server:
        relays.broker_url = server.url
        running = relays.start(relay_ids_per_task=1)
        rows.add(20)
        until_true(lambda: rows.out() == 20)

        server.restart()

        until_true(lambda: lost(running) == [20])
        until_true(lambda: queued(server) == (40 if comes_back_with_its_contents else 20))
        until_true(lambda: rows.out() == 20)
        running.stop()


def test_rows_in_a_countdown_are_published_again_when_due_and_not_before(
    own: Any, server: RedisServer, rows: Any, connection: Connection, until_true: Any
) -> None:
    (id_,) = rows.add()
    own.once()
    connection.execute("UPDATE email_messages SET due_at = now() + interval '1 hour' WHERE id = %s", [id_])
    with redis.Redis.from_url(server.url) as client:
        client.flushall()

    own.once()

    assert rows.column("published_at", id_) is None
    assert queued(server) == 0
    connection.execute("UPDATE email_messages SET due_at = now() WHERE id = %s", [id_])
    assert own.once() == 1


def test_of_two_relays_one_repairs_the_brokers_loss(own: Any, server: RedisServer, rows: Any, until_true: Any) -> None:
    both = [own.start(relay_ids_per_task=1) for _ in range(2)]
    rows.add(500)
    until_true(lambda: rows.out() == 500)

    with redis.Redis.from_url(server.url) as client:
        client.flushall()

    until_true(lambda: rows.out() == 500 and queued(server) >= 500)
    time.sleep(1.5)
    assert sorted(count for running in both for count in lost(running)) == [500]
    assert queued(server) == 500


def test_a_repair_that_was_cut_off_is_done_again(
    own: Any, server: RedisServer, rows: Any, connection: Connection
) -> None:
    """Killed after it left its mark in the broker and before its commit."""
    rows.add(10)
    own.once()
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
        client.set(BROKER_MARK_KEY, "left by the one that was killed")

    assert own.once() == 10


def test_a_round_under_way_is_not_overlooked_by_another_relays_repair(
    own: Any, server: RedisServer, rows: Any, connection: Connection
) -> None:
    """The repair waits for the round that published before the loss and commits after it."""
    own.once()
    rows.add(10)
    slow, _ = own.make()
    slow._turn()
    rows.add(10)
    publish = slow._publisher.publish
    repaired: list[int] = []

    def publish_and_lose(hints: Any, at: Any) -> Any:
        mark = publish(hints, at)
        with redis.Redis.from_url(server.url) as client:
            client.flushall()
        with pytest.raises(psycopg.errors.LockNotAvailable):
            repaired.append(own.once(relay_database_timeout_seconds=1))
        return mark

    slow._publisher.publish = publish_and_lose
    slow._turn()
    slow._leave()

    assert repaired == []
    assert own.once() == 20
    assert queued(server) == 20


def consume(server: RedisServer, priority: Priority = Priority.NORMAL) -> None:
    with redis.Redis.from_url(server.url) as client:
        assert client.rpop(QUEUES[priority]) is not None


def test_a_row_whose_message_was_lost_on_the_way_is_published_again(
    own: Any, server: RedisServer, rows: Any, connection: Connection, until_true: Any
) -> None:
    rows.add()
    running = own.start(republish_seconds=0.5)
    until_true(lambda: rows.out() == 1)

    consume(server)

    until_true(lambda: queued(server) == 1)
    until_true(lambda: sum(s.republished for s in running.signals if isinstance(s, Published)) == 1)


def test_a_backlog_that_merely_waits_in_the_broker_is_not_published_again(
    own: Any, server: RedisServer, rows: Any, connection: Connection
) -> None:
    rows.add(50)
    own.once(relay_ids_per_task=1)
    connection.execute("UPDATE email_messages SET due_at = now() - interval '1 hour'")
    age(server, connection, 3600)

    for _ in range(3):
        assert own.once(republish_seconds=60) == 0
    assert queued(server) == 50


def test_one_that_was_lost_is_found_while_others_wait_in_the_broker(
    own: Any, server: RedisServer, rows: Any, connection: Connection
) -> None:
    (gone,) = rows.add()
    own.once()
    consume(server)
    age(server, connection, 3600)
    rows.add(5)
    own.once(relay_ids_per_task=1, republish_seconds=86400)
    age(server, connection, 1800)

    assert own.once(republish_seconds=60) == 1
    assert rows.value("SELECT count(*) FROM email_messages WHERE published_at > now() - interval '1 minute'") == 1
    assert rows.value("SELECT id FROM email_messages ORDER BY published_at DESC LIMIT 1") == gone


def age(server: RedisServer, connection: Connection, seconds: int) -> None:
    """Let time pass for what is out and for what is in the queue."""
    connection.execute(
        """UPDATE email_messages SET published_at = published_at - make_interval(secs => %(s)s),
            due_at = due_at - make_interval(secs => %(s)s)""",
        {"s": seconds},
    )
    with redis.Redis.from_url(server.url) as client:
        for queue in QUEUES.values():
            for index, raw in enumerate(client.lrange(queue, 0, -1)):
                message = json.loads(raw)
                message["properties"]["timestamp"] -= seconds
                client.lset(queue, index, json.dumps(message))


@pytest.mark.parametrize(
    "foreign",
    [b"\xff\xfe", b"not json", b"[]", b"{}", b'{"properties": {"timestamp": "yesterday"}}',
     b'{"properties": {"timestamp": 1e999}}', b'{"properties": null}', b"[" * 100_000],
)  # fmt: skip
def test_foreign_messages_at_the_front_of_a_queue_make_no_copies(
    own: Any, server: RedisServer, rows: Any, connection: Connection, foreign: bytes
) -> None:
    rows.add()
    own.once()
    age(server, connection, 3600)
    consume(server)
    with redis.Redis.from_url(server.url) as client:
        client.rpush(QUEUES[Priority.NORMAL], foreign)

        assert own.once(republish_seconds=60) == 0
        client.delete(QUEUES[Priority.NORMAL])
    assert own.once(republish_seconds=60) == 1


def test_a_row_that_is_being_claimed_while_the_broker_is_repaired_is_left_alone(
    own: Any, server: RedisServer, rows: Any, connection: Connection
) -> None:
    first, second = rows.add(2)
    own.once()
    assert transitions.claim(connection, MAIL, first, provider="memory")
    with redis.Redis.from_url(server.url) as client:
        client.flushall()

    assert own.once() == 1
    assert rows.column("status", first) == "SENDING"
    assert rows.column("published_at", second) is not None
