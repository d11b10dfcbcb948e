"""The real processes together: relay, Redis, Celery worker and beat, SMTP."""

from __future__ import annotations

import signal
from typing import Any

import psycopg
import pytest

from outbox_mail import Priority, enqueue, enqueue_many
from outbox_mail.operations.processes import list_processes
from outbox_mail.testing.deployment import Deployment

Connection = psycopg.Connection[Any]


def test_a_committed_row_becomes_a_mail_exactly_once(deployment: Deployment, connection: Connection) -> None:
    ids = enqueue_many(
        connection,
        [{"to": f"n{n}@example.com", "template": "HELLO", "parameters": {"name": str(n)}} for n in range(200)],
    )
    deployment.relay()
    deployment.worker()

    deployment.until(deployment.all_sent(200))

    assert sorted(mail.message_id for mail in deployment.sink.accepted) == sorted(
        f"<{id_.hex}@outbox.localdomain>" for id_ in ids
    )


def test_a_recipient_refused_for_now_gets_its_mail_by_a_countdown(
    deployment: Deployment, connection: Connection
) -> None:
    enqueue(connection, to="greylisted@example.com", template="HELLO", parameters={"name": "x"})
    deployment.relay(OUTBOX_MAIL_REPUBLISH_SECONDS="600")
    deployment.worker(OUTBOX_MAIL_REPUBLISH_SECONDS="600")

    deployment.until(deployment.all_sent(1))

    assert connection.execute("SELECT attempt_count FROM email_messages").fetchone() == (2,)
    assert len(deployment.sink.accepted) == 1


def test_without_countdowns_the_table_alone_carries_the_wait(deployment: Deployment, connection: Connection) -> None:
    enqueue(connection, to="greylisted@example.com", template="HELLO", parameters={"name": "x"})
    deployment.relay()
    deployment.worker(OUTBOX_MAIL_COUNTDOWNS_OUTSTANDING="0")

    deployment.until(deployment.all_sent(1))


def test_messages_of_one_key_go_out_in_order(deployment: Deployment, connection: Connection) -> None:
    for n in range(12):
        name = "greylisted" if n == 3 else "n"
        enqueue(
            connection,
            to=f"{name}{n}@example.com",
            template="HELLO",
            parameters={"name": str(n)},
            ordering_key="k",
        )
    deployment.relay()
    deployment.worker()

    deployment.until(deployment.all_sent(12))

    subjects = [mail.data.split(b"Subject: Hello ")[1].split(b"\r\n")[0] for mail in deployment.sink.accepted]
    assert subjects == [str(n).encode() for n in range(12)]


def test_urgent_mail_passes_bulk_mail(deployment: Deployment, connection: Connection) -> None:
    deployment.sink.behaviour.latency_seconds = 0.02
    enqueue_many(
        connection,
        [
            {"to": "bulk@example.com", "template": "HELLO", "parameters": {"name": "b"}, "priority": Priority.BULK}
            for _ in range(600)
        ],
    )
    deployment.relay()
    deployment.worker(OUTBOX_MAIL_WORKER_CONCURRENCY="2")
    deployment.until(lambda: len(deployment.sink.accepted) > 20)

    id_ = enqueue(
        connection,
        to="urgent@example.com",
        template="HELLO",
        parameters={"name": "u"},
        priority=Priority.HIGH,
    )
    deployment.until(lambda: any(mail.message_id.startswith(f"<{id_.hex}") for mail in deployment.sink.accepted))

    assert deployment.statuses()["PENDING"] > 100


def test_a_worker_that_is_told_to_leave_finishes_what_it_claimed_and_gives_back_the_rest(
    deployment: Deployment,
    connection: Connection,
) -> None:
    deployment.sink.behaviour.latency_seconds = 0.2
    enqueue_many(
        connection,
        [{"to": "a@example.com", "template": "HELLO", "parameters": {"name": "x"}} for _ in range(200)],
    )
    deployment.relay()
    worker = deployment.worker()
    deployment.until(lambda: len(deployment.sink.accepted) > 5)

    worker.send_signal(signal.SIGTERM)
    assert worker.wait(15) == 0

    statuses = deployment.statuses()
    assert "SENDING" not in statuses
    assert statuses["SENT"] == len(deployment.sink.accepted)
    deployment.sink.behaviour.latency_seconds = 0
    deployment.worker()
    deployment.until(deployment.all_sent(200))
    assert len(deployment.sink.accepted) == 200


def test_a_killed_worker_costs_time_only(deployment: Deployment, connection: Connection) -> None:
    timing = {
        "OUTBOX_MAIL_LEASE_SECONDS": "3",
        "OUTBOX_MAIL_SEND_DEADLINE_SECONDS": "2",
        "OUTBOX_MAIL_REAP_INTERVAL_SECONDS": "1",
    }
    deployment.sink.behaviour.latency_seconds = 0.1
    enqueue_many(
        connection,
        [{"to": "a@example.com", "template": "HELLO", "parameters": {"name": "x"}} for _ in range(60)],
    )
    deployment.relay(**timing)
    deployment.beat(**timing)
    worker = deployment.worker(**timing)
    deployment.until(lambda: len(deployment.sink.accepted) > 5)

    worker.kill()
    worker.wait()
    deployment.worker(**timing)

    deployment.until(deployment.all_sent(60), seconds=45)
    copies = len(deployment.sink.accepted) - len({mail.message_id for mail in deployment.sink.accepted})
    assert copies <= 4  # one for each mail that was under way


def test_workers_and_beat_write_down_their_progress_and_leave_no_trace(
    deployment: Deployment, connection: Connection
) -> None:
    worker, beat = deployment.worker(), deployment.beat()
    deployment.until(lambda: {each.kind for each in list_processes(connection)} == {"worker", "beat"})

    worker.send_signal(signal.SIGTERM)
    beat.send_signal(signal.SIGTERM)
    worker.wait(15)
    beat.wait(15)

    assert list_processes(connection) == []


def test_hostile_broker_messages_are_dropped_and_the_worker_goes_on(
    deployment: Deployment, connection: Connection
) -> None:
    from celery import Celery

    app = Celery(broker=deployment.environment["OUTBOX_MAIL_BROKER_URL"], set_as_current=False)
    hostile: list[list[Any]] = [
        [],
        [None],
        ["x"],
        [5],
        [{"a": 1}],
        [[1, None, "not-a-uuid", {"x": []}]],
        [[], 7],
        [["x" * 100_000]],
    ]
    for arguments in hostile:
        app.send_task("outbox_mail.deliver", args=arguments, queue="mail.normal")
    app.send_task("outbox_mail.deliver", kwargs={"surprise": 1}, queue="mail.normal")
    app.send_task("unknown.task", args=[1], queue="mail.normal")
    app.close()
    enqueue(connection, to="a@example.com", template="HELLO", parameters={"name": "x"})
    deployment.relay()
    worker = deployment.worker()

    deployment.until(deployment.all_sent(1))

    assert worker.poll() is None
    assert "task_refused" in deployment.log(worker)


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"OUTBOX_MAIL_SEND_DEADLINE_SECONDS": "500"}, "SEND_DEADLINE_SECONDS|send_deadline_seconds"),
        ({"OUTBOX_MAIL_COUNTDOWN_CEILING_SECONDS": "4000"}, "countdown_ceiling_seconds"),
        ({"OUTBOX_MAIL_PROVIDER_URL": "smpt://user:hunter2@host"}, "smpt"),
        ({"OUTBOX_MAIL_TEMPLATES": "/nowhere/at/all"}, "/nowhere/at/all"),
        ({"OUTBOX_MAIL_DATABASE_URL": "mysql://root:hunter2@host/x"}, "postgresql://"),
        ({"OUTBOX_MAIL_DEFAULT_SENDER": "nobody"}, "DEFAULT_SENDER"),
        ({"OUTBOX_MAIL_RETRY_SCHEDULE_SECONDS": "soon"}, "RETRY_SCHEDULE_SECONDS"),
    ],
)
def test_a_worker_refuses_settings_that_contradict_each_other(
    deployment: Deployment, environment: dict[str, str], words: str
) -> None:
    import re

    worker = deployment.worker(**environment)

    assert worker.wait(20) != 0
    log = deployment.log(worker)
    assert re.search(words, log)
    assert "Traceback" not in log
    assert "hunter2" not in log


def test_neither_logs_nor_flower_see_addresses_or_parameters(deployment: Deployment, connection: Connection) -> None:
    enqueue(connection, to="secret-person@example.com", template="HELLO", parameters={"name": "hunter2"})
    relay, worker = deployment.relay(), deployment.worker("-E")

    deployment.until(deployment.all_sent(1))

    for child in (relay, worker):
        assert "hunter2" not in deployment.log(child)
        assert "secret-person" not in deployment.log(child)
