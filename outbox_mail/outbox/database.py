"""The service's connections to PostgreSQL: a small pool that outlives outages."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import psycopg
from psycopg import Connection
from psycopg_pool import ConnectionPool, PoolTimeout

from outbox_mail.errors import DatabaseUnavailableError
from outbox_mail.outbox.bounded import BoundedConnection
from outbox_mail.outbox.signals import DatabaseUnavailable, Signals

T = TypeVar("T")

# A prepared plan made while the table was empty must not turn into a scan of the whole of it.
_PLANS: Final = {"enable_seqscan": "off"}
_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 5.0


class Database:
    """A pool of connections in autocommit. Make it in the process that uses it, after any fork.

    ``timeout_seconds`` bounds connecting, each answer, and the wait for a free connection; a lock is waited for a third
    of it. ``pooler``: behind a transaction pooler, where nothing may be prepared and no parameter of the session set.
    """

    def __init__(
        self, url: str, signals: Signals, *, process: str, pool_size: int, timeout_seconds: float, pooler: bool = False
    ) -> None:
        self._signals = signals
        self._process = process
        self._stopping = threading.Event()
        parameters = {
            "statement_timeout": f"{timeout_seconds * 1000:.0f}",
            "lock_timeout": f"{timeout_seconds * 1000 / 3:.0f}",
            **_PLANS,
        }
        options = "" if pooler else " ".join(f"-c {name}={value}" for name, value in parameters.items())

        def configure(connection: BoundedConnection) -> None:
            connection.answer_seconds = timeout_seconds * 1.5

        self._pool = ConnectionPool(
            url,
            connection_class=BoundedConnection,
            kwargs={
                "autocommit": True,
                "prepare_threshold": None if pooler else 5,
                "connect_timeout": max(2, round(timeout_seconds)),
                "application_name": f"outbox-mail {process}",
                "tcp_user_timeout": round(timeout_seconds * 1000),
                "keepalives": 1,
                "keepalives_idle": 10,
                "keepalives_interval": 5,
                "keepalives_count": 3,
                "options": options,
            },
            configure=configure,
            min_size=1,
            max_size=pool_size,
            timeout=timeout_seconds,
            reconnect_timeout=timeout_seconds,
            open=False,
        )

    @contextmanager
    def connection(self) -> Iterator[Connection[Any]]:
        """A connection for as long as the block lasts; hold it for statements only, never while a provider is called.

        Raises ``DatabaseUnavailableError`` when there is none in time or it breaks; what the block did may then have
        been committed or not. Other errors of the database pass through.
        """
        try:
            self._pool.open()
            with self._pool.connection() as connection:
                yield connection
        except (psycopg.OperationalError, psycopg.InterfaceError, PoolTimeout) as error:
            raise DatabaseUnavailableError(f"database: {type(error).__name__}. See the server's log.") from error

    def persist(
        self, operation: Callable[[Connection[Any]], T], *, patience_seconds: float, until_stop: bool = True
    ) -> tuple[T, int]:
        """Run ``operation`` until it gets through, or ``patience_seconds`` have passed; also returns which try it was.

        A try that broke off may have been committed, so ``operation`` must bear to be repeated. Pauses grow, with
        jitter. Raises ``DatabaseUnavailableError`` when patience is at an end, or after ``stop`` if ``until_stop``.
        """
        give_up_at = time.monotonic() + patience_seconds
        tries = 1
        while True:
            try:
                with self.connection() as connection:
                    return operation(connection), tries
            except DatabaseUnavailableError as error:
                pause = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2 ** min(tries - 1, 10))
                pause *= 0.5 + random.random() / 2  # noqa: S311 - jitter, not a secret
                if time.monotonic() + pause > give_up_at:
                    raise
                self._signals.emit(DatabaseUnavailable(self._process, str(error), pause))
                if until_stop and self._stopping.wait(pause):
                    raise
                if not until_stop:
                    time.sleep(pause)
                tries += 1

    def stop(self) -> None:
        """End the patience of those who wait ``until_stop``: the process wants to leave."""
        self._stopping.set()

    def close(self) -> None:
        """Let all connections go."""
        self._pool.close()
