"""Celery's own scheduler, which also writes down that it turns."""

from __future__ import annotations

import time
from typing import Any

from celery.beat import PersistentScheduler

from tasks.ledger import REPORT_SECONDS, Ledger


class Scheduler(PersistentScheduler):
    """Reports progress from its own loop: when the loop hangs it falls silent. Never sleeps longer than a report."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._ledger = Ledger("beat")
        self._next_report_at = 0.0
        super().__init__(*args, **kwargs)

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Send what is due; returns the seconds until the next look."""
        seconds = super().tick(*args, **kwargs)
        if time.monotonic() >= self._next_report_at:
            self._next_report_at = time.monotonic() + REPORT_SECONDS
            self._ledger.report("scheduling")
        return min(float(seconds), REPORT_SECONDS)

    def close(self) -> None:
        """Beat leaves in good order."""
        self._ledger.forget()
        super().close()
