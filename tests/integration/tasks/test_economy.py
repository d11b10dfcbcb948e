"""What the whole way costs: updates for each mail, ids in the broker, and the other pool."""

from __future__ import annotations

import json
import re
import time

import psycopg
import redis

from outbox_mail import enqueue_many
from outbox_mail.names import QUEUES
from outbox_mail.testing.deployment import Deployment

WINDOW = 300
UUIDS = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def fill(deployment: Deployment, count: int) -> None:
    with psycopg.connect(deployment.database_url, autocommit=True) as connection:
        enqueue_many(
            connection,
            [{"to": "a@example.com", "template": "HELLO", "parameters": {"name": "x"}} for _ in range(count)],
        )


def test_a_mail_is_written_once_and_updated_by_its_relay_batch_its_claim_and_its_sent_alone(
    deployment: Deployment,
) -> None:
    fill(deployment, 400)
    deployment.relay()
    deployment.worker()
    deployment.until(deployment.all_sent(400))

    def written() -> list[tuple[int, ...]]:
        # A session's own count arrives within a second or so of its last statement.
        return deployment.query("SELECT n_tup_ins, n_tup_upd FROM pg_stat_user_tables WHERE relname = 'email_messages'")

    deployment.until(lambda: written() >= [(400, 3 * 400)])
    assert written() == [(400, 3 * 400)]


def test_the_broker_never_holds_more_ids_than_its_bound_with_20_000_rows_waiting(
    deployment: Deployment, redis_url: str
) -> None:
    fill(deployment, 20_000)
    deployment.sink.behaviour.latency_seconds = 0.01
    limits = {"OUTBOX_MAIL_RELAY_WINDOW": str(WINDOW), "OUTBOX_MAIL_RELAY_BATCH_SIZE": "100"}
    deployment.relay(**limits)
    deployment.worker(**limits)
    most = 0
    with redis.Redis.from_url(redis_url) as client:
        deadline = time.monotonic() + 12
        while time.monotonic() < deadline:
            messages = [message for queue in QUEUES.values() for message in client.lrange(queue, 0, -1)]
            in_broker = sum(len(UUIDS.findall(json.loads(message)["headers"]["argsrepr"])) for message in messages)
            [(out,)] = deployment.query(
                "SELECT count(*) FROM email_messages WHERE status = 'PENDING' AND published_at IS NOT NULL"
            )
            most = max(most, out, in_broker)

    assert 0 < most <= WINDOW
    assert len(deployment.sink.accepted) > WINDOW


def test_a_prefork_worker_delivers_with_parts_of_each_childs_own(deployment: Deployment) -> None:
    fill(deployment, 100)
    deployment.relay()
    worker = deployment.worker("--pool=prefork", "--concurrency=2")

    deployment.until(deployment.all_sent(100))

    assert len(deployment.sink.accepted) == 100
    assert worker.poll() is None
    clients = deployment.query(
        "SELECT count(DISTINCT pid) FROM pg_stat_activity"
        " WHERE application_name = 'outbox-mail worker' AND datname = current_database()"
    )
    assert clients >= [(2,)]
