"""A database that is down, restarts, or hangs costs delay and nothing else."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from outbox_mail.embedded import PostgresServer
from outbox_mail.operations.migrate import migrate
from outbox_mail.outbox.signals import DatabaseUnavailable
from relay.database import Sessions


def outages(running: Any) -> list[DatabaseUnavailable]:
    return [signal for signal in running.signals if isinstance(signal, DatabaseUnavailable)]


def test_the_relay_resumes_after_the_database_was_restarted(
    tmp_path: Path, relays: Any, broker: Any, until_true: Any
) -> None:
    insert = "INSERT INTO email_messages (\"to\", template) VALUES (ARRAY['a@example.com'], 'T')"
    with PostgresServer(tmp_path / "postgres") as server:
        server.create_database("own")
        relays.database_url = server.url_for("own")
        migrate(relays.database_url)
        running = relays.start(relay_poll_seconds=0.2)
        with psycopg.connect(relays.database_url, autocommit=True) as connection:
            connection.execute(insert.encode())
        until_true(lambda: len(broker.ids()) == 1)

        server.kill()
        until_true(lambda: len(outages(running)) >= 2)
        assert all(0 < outage.retry_in_seconds <= 0.5 for outage in outages(running))
        server.start()

        with psycopg.connect(relays.database_url, autocommit=True) as connection:
            connection.execute(insert.encode())
        until_true(lambda: len(set(broker.ids())) == 2)
        running.stop()


def test_the_relay_leaves_while_the_database_is_down(relays: Any, until_true: Any) -> None:
    relays.database_url = "postgresql://nobody:secret@127.0.0.1:1/none"
    running = relays.start()
    until_true(lambda: outages(running))

    running.stop(seconds=3)

    assert not [outage for outage in outages(running) if "secret" in outage.reason]


def test_a_session_that_was_terminated_is_replaced(
    relays: Any, broker: Any, rows: Any, connection: psycopg.Connection[Any], until_true: Any
) -> None:
    relays.start(relay_poll_seconds=30)
    rows.add()
    until_true(lambda: len(broker.ids()) == 1)

    connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'outbox-mail relay'"
    )
    rows.add()

    until_true(lambda: len(set(broker.ids())) == 2, seconds=5)


def test_a_table_that_is_not_there_yet_is_waited_for(
    relays: Any, postgres: PostgresServer, broker: Any, until_true: Any
) -> None:
    postgres.create_database("not_migrated")
    relays.database_url = postgres.url_for("not_migrated")
    running = relays.start()
    until_true(lambda: outages(running))

    migrate(relays.database_url)

    with psycopg.connect(relays.database_url, autocommit=True) as connection:
        connection.execute("INSERT INTO email_messages (\"to\", template) VALUES (ARRAY['a@example.com'], 'T')")
    until_true(lambda: len(broker.ids()) == 1)


def test_an_answer_that_never_comes_is_given_up_on(database_url: str) -> None:
    """The server is stopped in the middle, as behind a half-open connection: its own time limits can't help."""
    session = Sessions(database_url, timeout_seconds=1, idle_in_transaction_seconds=60).open()
    row = session.execute("SELECT pg_backend_pid()").fetchone()
    assert row is not None
    os.kill(row[0], signal.SIGSTOP)
    try:
        started = time.monotonic()
        with pytest.raises(psycopg.OperationalError), session.transaction():
            session.execute("SELECT 1")
        assert time.monotonic() - started < 3
        assert session.closed
    finally:
        os.kill(row[0], signal.SIGCONT)


@pytest.mark.parametrize("pooler", [False, True])
def test_a_statement_that_takes_too_long_is_cancelled_by_the_server(database_url: str, pooler: bool) -> None:
    sessions = Sessions(database_url, timeout_seconds=0.6, idle_in_transaction_seconds=60, pooler=pooler)
    with (
        sessions.open() as session,
        pytest.raises(psycopg.errors.QueryCanceled),
        sessions.limits(session),
    ):
        session.execute("SELECT pg_sleep(5)")


def test_rows_locked_by_somebody_are_skipped(relays: Any, broker: Any, rows: Any, database_url: str) -> None:
    locked, free = rows.add(2)
    with psycopg.connect(database_url) as other:
        other.execute("SELECT FROM email_messages WHERE id = %s FOR UPDATE", [locked])
        relays.once()
        assert broker.ids() == [free]

    relays.once()
    assert broker.ids() == [free, locked]
