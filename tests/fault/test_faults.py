"""What may break while mail is under way: nothing is lost, and no copy goes out that the fault does not allow."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis

from outbox_mail import enqueue_many
from outbox_mail.embedded import PostgresServer, RedisServer
from outbox_mail.operations.migrate import migrate
from outbox_mail.testing.deployment import Deployment, Ledger, environment_for
from outbox_mail.testing.sink import Fault, Sink, Step, Way

CONCURRENCY = 4
QUICK = {
    "OUTBOX_MAIL_LEASE_SECONDS": "4",
    "OUTBOX_MAIL_SEND_DEADLINE_SECONDS": "2",
    "OUTBOX_MAIL_REAP_INTERVAL_SECONDS": "1",
    "OUTBOX_MAIL_DATABASE_TIMEOUT_SECONDS": "3",
    "OUTBOX_MAIL_RELAY_DATABASE_TIMEOUT_SECONDS": "3",
    "OUTBOX_MAIL_BROKER_TIMEOUT_SECONDS": "2",
    "OUTBOX_MAIL_RELAY_BACKOFF_MAX_SECONDS": "1",
    "OUTBOX_MAIL_WORKER_CONCURRENCY": str(CONCURRENCY),
    "OUTBOX_MAIL_MAX_ATTEMPTS": "10",
}
RECOVERY_SECONDS = 45


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis server that keeps nothing, and that the test may kill."""
    with RedisServer(tmp_path / "redis") as server:
        yield server


@pytest.fixture
def own_postgres(tmp_path: Path) -> Iterator[PostgresServer]:
    """A migrated PostgreSQL server that the test may kill; durable, as its data must survive."""
    with PostgresServer(tmp_path / "postgres") as server:
        migrate(server.url)
        yield server


def fill(url: str, count: int) -> None:
    """Commit ``count`` messages."""
    with psycopg.connect(url, autocommit=True) as connection:
        enqueue_many(
            connection,
            [{"to": f"n{n}@example.com", "template": "HELLO", "parameters": {"name": str(n)}} for n in range(count)],
        )


def run(deployment: Deployment, *, latency_seconds: float = 0.03) -> dict[str, Any]:
    """Start one of each process, with mail that takes its time."""
    deployment.environment |= QUICK
    deployment.sink.behaviour.latency_seconds = latency_seconds
    return {"relay": deployment.relay(), "worker": deployment.worker(), "beat": deployment.beat()}


def under_way(deployment: Deployment, count: int = 20) -> None:
    """Wait until some mail is out and more is to come."""
    deployment.until(lambda: len(deployment.sink.accepted) >= count)


def whole(deployment: Deployment, count: int, *, copies: int = 0) -> Ledger:
    """Wait until all is SENT, then hold the table against what the SMTP server wrote down."""
    deployment.until(deployment.all_sent(count), seconds=RECOVERY_SECONDS)
    ledger = deployment.ledger()
    assert (ledger.lost, ledger.sent_but_not_accepted, ledger.accepted_but_not_sent) == (0, 0, 0)
    assert ledger.copies <= copies
    return ledger


def test_a_flushed_broker_costs_time_only(deployment: Deployment, redis_url: str) -> None:
    fill(deployment.database_url, 400)
    run(deployment)
    under_way(deployment)

    with redis.Redis.from_url(redis_url) as client:
        client.flushall()

    whole(deployment, 400)


def test_a_broker_that_is_killed_and_comes_back_empty_costs_time_only(
    database_url: str, own_redis: RedisServer, hello: Path, tmp_path: Path, root: Path
) -> None:
    with Sink() as sink:
        environment = environment_for(database_url, own_redis.url, sink.url, hello)
        deployment = Deployment(root, tmp_path, environment, database_url, sink)
        try:
            fill(database_url, 400)
            children = run(deployment)
            under_way(deployment)
            own_redis.kill()
            time.sleep(2)  # the outage
            assert [child.poll() for child in children.values()] == [None] * 3
            own_redis.start()
            whole(deployment, 400)
            assert [child.poll() for child in children.values()] == [None] * 3
        finally:
            deployment.end()


def test_a_broker_without_memory_costs_time_only(
    database_url: str, own_redis: RedisServer, hello: Path, tmp_path: Path, root: Path
) -> None:
    with Sink() as sink, redis.Redis.from_url(own_redis.url) as client:
        environment = environment_for(database_url, own_redis.url, sink.url, hello)
        deployment = Deployment(root, tmp_path, environment, database_url, sink)
        try:
            run(deployment)
            # As soon as they run: a worker then meets the full broker while it declares its queues, or later.
            deployment.until(lambda: len(deployment.query("SELECT FROM outbox_processes")) == 3)
            client.config_set("maxmemory-policy", "noeviction")
            client.config_set("maxmemory", "1mb")
            fill(database_url, 100)
            time.sleep(2)  # the outage
            assert deployment.query("SELECT sum(attempt_count)::int FROM email_messages") == [(0,)]
            client.config_set("maxmemory", "0")
            whole(deployment, 100)
        finally:
            deployment.end()


def test_a_database_that_is_killed_and_comes_back_loses_nothing(
    own_postgres: PostgresServer, redis_url: str, hello: Path, tmp_path: Path, root: Path
) -> None:
    with Sink() as sink:
        environment = environment_for(own_postgres.url, redis_url, sink.url, hello)
        deployment = Deployment(root, tmp_path, environment, own_postgres.url, sink)
        try:
            fill(own_postgres.url, 400)
            children = run(deployment)
            under_way(deployment)
            own_postgres.kill()
            time.sleep(2)  # the outage
            own_postgres.start()
            # No mail in flight need be sent again: its acceptance is recorded when the database is back.
            whole(deployment, 400)
            assert deployment.query("SELECT sum(attempt_count)::int FROM email_messages") == [(0,)]
            assert [child.poll() for child in children.values()] == [None] * 3
        finally:
            deployment.end()


def test_connections_that_are_all_terminated_again_and_again_lose_nothing(deployment: Deployment) -> None:
    fill(deployment.database_url, 300)
    children = run(deployment)
    under_way(deployment)

    for _ in range(5):
        deployment.query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        time.sleep(0.3)  # let some come back

    # A claim whose answer was lost is the reaper's, and was never sent.
    whole(deployment, 300)
    assert [child.poll() for child in children.values()] == [None] * 3


def test_a_relay_that_is_killed_in_the_middle_costs_time_only(deployment: Deployment) -> None:
    fill(deployment.database_url, 600)
    children = run(deployment, latency_seconds=0.01)
    for _ in range(3):
        under_way(deployment, len(deployment.sink.accepted) + 20)
        children["relay"].kill()
        children["relay"].wait()
        fill(deployment.database_url, 20)
        children["relay"] = deployment.relay()

    whole(deployment, 660)


def test_two_of_everything_send_each_mail_once(deployment: Deployment) -> None:
    fill(deployment.database_url, 600)
    run(deployment, latency_seconds=0.01)
    run(deployment, latency_seconds=0.01)

    whole(deployment, 600)


def test_a_worker_that_is_stopped_for_longer_than_its_lease_does_no_harm(deployment: Deployment) -> None:
    fill(deployment.database_url, 150)
    children = run(deployment, latency_seconds=0.1)
    under_way(deployment)

    children["worker"].send_signal(signal.SIGSTOP)
    deployment.worker()
    deployment.until(
        lambda: deployment.query("SELECT count(*) FROM email_messages WHERE reap_count > 0") >= [(1,)], seconds=20
    )
    deployment.until(deployment.all_sent(150), seconds=RECOVERY_SECONDS)
    children["worker"].send_signal(signal.SIGCONT)
    time.sleep(2)  # whatever it still does, it does now

    whole(deployment, 150, copies=CONCURRENCY)


def test_a_killed_worker_leaves_copies_of_at_most_what_it_had_in_flight(deployment: Deployment) -> None:
    fill(deployment.database_url, 200)
    children = run(deployment, latency_seconds=0.05)
    under_way(deployment)

    children["worker"].kill()
    children["worker"].wait()
    deployment.worker()

    whole(deployment, 200, copies=CONCURRENCY)


@pytest.mark.parametrize(
    ("fault", "copies"),
    [
        pytest.param(Fault(Step.CONNECT, Way.CLOSE, times=3), 0, id="refused at the door"),
        pytest.param(Fault(Step.MAIL, Way.REPLY_AND_CLOSE, b"421 4.3.2 closing\r\n", times=5), 0, id="421 at MAIL"),
        pytest.param(Fault(Step.DATA, Way.REPLY_AND_CLOSE, b"421 4.3.2 closing\r\n", times=5), 0, id="421 at DATA"),
        pytest.param(Fault(Step.END, Way.REPLY_AND_CLOSE, b"421 4.3.2 closing\r\n", times=5), 0, id="421 at the end"),
        pytest.param(Fault(Step.END, Way.SILENCE, times=3), 0, id="silent after DATA"),
        pytest.param(Fault(Step.END, Way.CLOSE, times=3), 0, id="drops before the final reply"),
        pytest.param(Fault(Step.ACCEPTED, Way.CLOSE, times=3), 3, id="accepts and drops before the final reply"),
        pytest.param(Fault(Step.REPLIED, Way.CLOSE, times=5), 0, id="drops after the final reply"),
        pytest.param(Fault(Step.QUIT, Way.CLOSE, times=None), 0, id="fails on QUIT"),
    ],
)
def test_a_mail_server_that_fails_costs_time_only(deployment: Deployment, fault: Fault, copies: int) -> None:
    deployment.sink.behaviour.faults.append(fault)
    fill(deployment.database_url, 60)
    run(deployment, latency_seconds=0)

    whole(deployment, 60, copies=copies)


def test_a_message_that_kills_its_worker_each_time_ends_failed_and_the_rest_is_sent(deployment: Deployment) -> None:
    fill(deployment.database_url, 30)
    [(poison,)] = deployment.query("SELECT id FROM email_messages ORDER BY id LIMIT 1")
    deployment.environment |= QUICK | {
        "OUTBOX_MAIL_MAX_REAPS": "2",
        "OUTBOX_MAIL_LEASE_SECONDS": "2",
        "OUTBOX_MAIL_SEND_DEADLINE_SECONDS": "1",
        "OUTBOX_MAIL_WORKER_CONCURRENCY": "1",
    }
    # As a worker's death leaves it: claimed, and no word after.
    with psycopg.connect(deployment.database_url, autocommit=True) as connection:
        connection.execute(
            "UPDATE email_messages SET status = 'SENDING', claims = 1, reap_count = 1,"
            " locked_at = now() - interval '1 minute' WHERE id = %s",
            [poison],
        )
    deployment.relay()
    deployment.worker()
    deployment.beat()

    deployment.until(lambda: deployment.statuses() == {"SENT": 29, "FAILED": 1})

    assert deployment.query("SELECT error_code FROM email_messages WHERE status = 'FAILED'") == [("poison",)]


def test_rolled_back_messages_are_never_mailed(deployment: Deployment) -> None:
    run(deployment, latency_seconds=0)
    with psycopg.connect(deployment.database_url) as connection:
        for n in range(50):
            enqueue_many(connection, [{"to": f"n{n}@example.com", "template": "HELLO", "parameters": {"name": "x"}}])
            connection.rollback() if n % 2 else connection.commit()

    whole(deployment, 25)
