"""Writing this process's progress down, on a connection of its own that is opened for each word."""

from __future__ import annotations

import logging
from typing import Any, Final

import psycopg

from outbox_mail.outbox.processes import forget, process_name, report_progress
from outbox_mail.settings import load_settings

REPORT_SECONDS: Final = 5.0
"""How often a process reports."""

_log = logging.getLogger(__name__)


class Ledger:
    """The line of a process of ``kind`` in ``outbox_processes``. A database that is away is logged and passed over."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._url = load_settings().database_url.get_secret_value()
        self._started = True

    def report(self, doing: str) -> None:
        """This process got somewhere just now."""
        try:
            with self._connected() as connection:
                report_progress(connection, self._kind, doing, started=self._started)
            self._started = False
        except psycopg.Error as error:
            _log.warning("progress_not_reported", extra={"error": type(error).__name__})

    def forget(self) -> None:
        """This process leaves in good order: nobody should wait for its next report."""
        try:
            with self._connected() as connection:
                forget(connection, process_name(self._kind))
        except psycopg.Error as error:
            _log.warning("progress_not_reported", extra={"error": type(error).__name__})

    def _connected(self) -> psycopg.Connection[Any]:
        return psycopg.connect(
            self._url,
            autocommit=True,
            prepare_threshold=None,
            connect_timeout=2,
            tcp_user_timeout=2000,
            application_name=f"outbox-mail {self._kind} progress",
        )
