"""A psycopg connection on which no answer is waited for without end."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import Connection
from psycopg.abc import RV, PQGen


class BoundedConnection(Connection[Any]):
    """A connection that gives up waiting for an answer after ``answer_seconds``, and closes itself then.

    The server's own time limits don't help when its answer never arrives: behind a half-open connection, or a proxy
    that stalls.
    """

    answer_seconds: float | None = None

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        """Wait for the answer, ``timeout`` or else ``answer_seconds``; then raise ``psycopg.OperationalError``."""
        if timeout is not None or self.answer_seconds is None:
            return super().wait(gen, interval, timeout)
        try:
            return super().wait(gen, interval, self.answer_seconds)
        except psycopg.OperationalError as error:
            # psycopg's own exception for this has no public name; every other one carries the server's SQLSTATE, or
            # comes with a connection that is closed already.
            if error.sqlstate is None and not self.closed:
                self.close()
            raise
