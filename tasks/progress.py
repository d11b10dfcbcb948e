"""The worker's progress, as health reads it: silent when the consumer's loop or a task hangs, and only then."""

from __future__ import annotations

import threading
import time
from typing import Any, Final

from celery import bootsteps
from celery.worker import state

from outbox_mail.names import DELIVER_TASK
from outbox_mail.settings import load_settings
from tasks.ledger import REPORT_SECONDS, Ledger

_LOOP_LIMIT_SECONDS: Final = 3 * REPORT_SECONDS


class ProgressStep(bootsteps.StartStopStep):
    """Stamps from the consumer's own loop that it turns; a thread beside it writes that down.

    While the broker is away the loop does not turn, and that is no fault of the worker: it says that it waits.
    """

    requires = ("celery.worker.consumer.connection:Connection",)

    def __init__(self, parent: Any, **_: Any) -> None:
        super().__init__(parent)
        self._turned_at: float | None = None
        self._timer: Any = None
        self._reporter: Reporter | None = None

    def start(self, parent: Any) -> None:
        """The consumer is connected."""
        self._turn()
        self._timer = parent.timer.call_repeatedly(REPORT_SECONDS / 2, self._turn)
        if self._reporter is None:
            self._reporter = Reporter(self)
            self._reporter.start()

    def stop(self, _parent: Any) -> None:
        """The broker is lost, or the worker leaves."""
        if self._timer is not None:
            self._timer.cancel()
        self._turned_at = None

    def terminate(self, parent: Any) -> None:
        """The worker leaves at once."""
        self.stop(parent)

    def shutdown(self, _parent: Any) -> None:
        """The worker has left its loop for good."""
        if self._reporter is not None:
            self._reporter.leave()

    def _turn(self) -> None:
        self._turned_at = time.monotonic()

    def doing(self, task_limit_seconds: float) -> str | None:
        """What the worker does; None when it hangs."""
        if self._turned_at is None:
            return "waiting for the broker"
        if time.monotonic() - self._turned_at > _LOOP_LIMIT_SECONDS:
            return None
        # Celery keeps time_start by the wall clock. Upkeep has bounds of its own, and may take longer.
        started = [
            request.time_start
            for request in list(state.active_requests)
            if request.time_start and request.name == DELIVER_TASK
        ]
        if started and time.time() - min(started) > task_limit_seconds:
            return None
        return f"delivering in {len(started)} tasks" if started else "idle"


class Reporter(threading.Thread):
    """Writes the worker's progress down every few seconds."""

    def __init__(self, step: ProgressStep) -> None:
        super().__init__(name="progress", daemon=True)
        settings = load_settings()
        self._step = step
        self._ledger = Ledger("worker")
        self._task_limit_seconds = settings.relay_ids_per_task * settings.send_deadline_seconds + settings.lease_seconds
        self._leaving = threading.Event()

    def run(self) -> None:
        """Until the worker leaves."""
        while True:
            if (doing := self._step.doing(self._task_limit_seconds)) is not None:
                self._ledger.report(doing)
            if self._leaving.wait(REPORT_SECONDS):
                return

    def leave(self) -> None:
        """The worker leaves in good order."""
        self._leaving.set()
        self.join(timeout=REPORT_SECONDS)
        self._ledger.forget()
