"""Celery's own scheduler, which also writes down that it turns."""

from __future__ import annotations

import logging
import time
from typing import Any, Final

import psycopg
from celery.beat import PersistentScheduler

from outbox_mail.outbox.processes import forget, process_name, report_progress
from outbox_mail.settings import load_settings

_REPORT_SECONDS: Final = 5.0
_log = logging.getLogger(__name__)


class Scheduler(PersistentScheduler):
    """Reports progress from its own loop: when the loop hangs it falls silent. Never sleeps longer than a report."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._url = load_settings().database_url.get_secret_value()
        self._next_report_at = 0.0
        self._started = True
        super().__init__(*args, **kwargs)

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Send what is due; returns the seconds until the next look."""
        seconds = super().tick(*args, **kwargs)
        if time.monotonic() >= self._next_report_at:
            self._next_report_at = time.monotonic() + _REPORT_SECONDS
            self._report()
        return min(float(seconds), _REPORT_SECONDS)

    def close(self) -> None:
        """Beat leaves in good order."""
        try:
            with self._connected() as connection:
                forget(connection, process_name("beat"))
        except psycopg.Error as error:
            _log.warning("progress_not_reported", extra={"error": type(error).__name__})
        super().close()

    def _report(self) -> None:
        try:
            with self._connected() as connection:
                report_progress(connection, "beat", "scheduling", started=self._started)
            self._started = False
        except psycopg.Error as error:
            _log.warning("progress_not_reported", extra={"error": type(error).__name__})

    def _connected(self) -> psycopg.Connection[Any]:
        return psycopg.connect(
            self._url,
            autocommit=True,
            prepare_threshold=None,
            connect_timeout=2,
            tcp_user_timeout=2000,
            application_name="outbox-mail beat",
        )
