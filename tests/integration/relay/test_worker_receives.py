"""A real Celery worker understands what the relay publishes."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from celery import Celery
from celery.contrib.testing.worker import start_worker

from outbox_mail.names import DELIVER_TASK, QUEUES, Priority


def test_a_celery_worker_gets_the_ids_from_the_queue_of_their_priority(
    relays: Any, rows: Any, redis_url: str, until_true: Any
) -> None:
    app = Celery("worker", broker=redis_url, set_as_current=False)
    app.conf.task_queues = {name: {"routing_key": name} for name in QUEUES.values()}
    app.conf.accept_content = ["json"]
    got: dict[UUID, str] = {}

    def deliver(task: Any, ids: list[str]) -> None:
        got.update({UUID(id_): task.request.delivery_info["routing_key"] for id_ in ids})

    app.task(name=DELIVER_TASK, bind=True, ignore_result=True)(deliver)

    expected = {id_: QUEUES[priority] for priority in Priority for id_ in rows.add(40, priority=priority)}
    relays.once()

    with start_worker(app, pool="solo", perform_ping_check=False, shutdown_timeout=20):
        until_true(lambda: len(got) == 120, seconds=20)

    assert got == expected
