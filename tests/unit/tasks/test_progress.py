"""When a worker is silent: its loop hangs, or a task of it does; never because it idles or waits for the broker."""

from __future__ import annotations

import time
from typing import Any

import pytest
from celery.worker import state
from celery.worker.request import Request

from outbox_mail.names import DELIVER_TASK, RETAIN_TASK


@pytest.fixture
def step(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A step of a worker that is connected and turned just now."""
    monkeypatch.setenv("OUTBOX_MAIL_DATABASE_URL", "postgresql://x@127.0.0.1:1/x")
    from tasks.progress import ProgressStep

    made = ProgressStep.__new__(ProgressStep)
    made._turned_at = time.monotonic()
    return made


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """The worker's running requests."""
    requests: list[Request] = []
    monkeypatch.setattr(state, "active_requests", requests)
    return requests


def request_accepted(seconds_ago: float, name: str = DELIVER_TASK) -> Request:
    """As Celery has it once its pool took it."""
    request = Request.__new__(Request)
    request.name = name
    request.time_start = time.time() - seconds_ago
    return request


def test_an_idle_worker_makes_progress(step: Any, running: list[Request]) -> None:
    assert step.doing(60) == "idle"


def test_a_worker_with_quick_tasks_makes_progress(step: Any, running: list[Request]) -> None:
    running.append(request_accepted(5))

    assert step.doing(60) == "delivering in 1 tasks"


def test_a_worker_with_a_task_that_hangs_is_silent(step: Any, running: list[Request]) -> None:
    running += [request_accepted(5), request_accepted(61)]

    assert step.doing(60) is None


def test_a_long_run_of_upkeep_is_no_hang(step: Any, running: list[Request]) -> None:
    running.append(request_accepted(200, RETAIN_TASK))

    assert step.doing(60) == "idle"


def test_a_worker_whose_loop_hangs_is_silent(step: Any, running: list[Request]) -> None:
    step._turned_at = time.monotonic() - 3600

    assert step.doing(60) is None


def test_a_worker_without_a_broker_waits(step: Any, running: list[Request]) -> None:
    step._turned_at = None

    assert step.doing(60) == "waiting for the broker"
