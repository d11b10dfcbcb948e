"""A bound on what a question may cost the database that also carries the mail."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import Connection

from outbox_mail.errors import OutboxMailError


@contextmanager
def bounded(connection: Connection[Any], seconds: float, *, advice: str) -> Iterator[None]:
    """One read-only transaction whose statements read indexes and are each cancelled after ``seconds``.

    Raises ``OutboxMailError`` with ``advice`` when one was.
    """
    try:
        with connection.transaction():
            connection.execute("SET TRANSACTION READ ONLY")
            # With old statistics the planner would rather read the whole table than a partial index.
            connection.execute(
                "SELECT set_config('statement_timeout', %s, true), set_config('enable_seqscan', 'off', true)",
                [str(max(1, int(seconds * 1000)))],
            )
            yield
    except psycopg.errors.QueryCanceled:
        raise OutboxMailError(f"database: no answer within {seconds:g} s. {advice}") from None
