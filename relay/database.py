"""The relay's session: nothing that it asks may take for ever, and no plan may read the whole table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from psycopg import Connection

from outbox_mail.outbox.bounded import BoundedConnection

# A prepared plan made while the table was empty must not turn into a scan of the whole of it, nor into a sort of the
# whole backlog: the partial indexes give every row in order.
_PLANS: Final = {"enable_seqscan": "off", "enable_bitmapscan": "off", "enable_sort": "off"}


class Sessions:
    """Opens the relay's sessions.

    ``timeout_seconds`` bounds connecting and each answer; a lock is waited for a third of it. ``pooler``: behind a
    transaction pooler, where no statement may be prepared and no parameter of the session set.
    """

    def __init__(
        self, url: str, *, timeout_seconds: float, idle_in_transaction_seconds: float, pooler: bool = False
    ) -> None:
        self._url = url
        self._timeout_seconds = timeout_seconds
        self._pooler = pooler
        self._parameters = {
            "statement_timeout": f"{timeout_seconds * 1000:.0f}",
            "lock_timeout": f"{timeout_seconds * 1000 / 3:.0f}",
            "idle_in_transaction_session_timeout": f"{idle_in_transaction_seconds * 1000:.0f}",
            **_PLANS,
        }

    def open(self) -> BoundedConnection:
        """A session in autocommit. Raises ``psycopg.OperationalError`` when connecting fails or takes too long."""
        options = " ".join(f"-c {name}={value}" for name, value in self._parameters.items())
        connection = BoundedConnection.connect(
            self._url,
            autocommit=True,
            prepare_threshold=None if self._pooler else 5,
            connect_timeout=max(2, round(self._timeout_seconds)),
            application_name="outbox-mail relay",
            tcp_user_timeout=round(self._timeout_seconds * 1000),
            keepalives=1,
            keepalives_idle=10,
            keepalives_interval=5,
            keepalives_count=3,
            options="" if self._pooler else options,
        )
        connection.answer_seconds = self._timeout_seconds * 1.5
        return connection

    def limit(self, connection: Connection[Any]) -> None:
        """At the start of a transaction: set for it what the session could not be given."""
        if self._pooler:
            connection.execute(
                "SELECT set_config(p.name, p.value, true) FROM unnest(%s::text[], %s::text[]) p(name, value)",
                [list(self._parameters), list(self._parameters.values())],
            )

    @contextmanager
    def limits(self, connection: Connection[Any]) -> Iterator[None]:
        """Statements in here have the limits: those of the session, or behind a pooler those of one transaction."""
        if self._pooler:
            with connection.transaction():
                self.limit(connection)
                yield
        else:
            yield
