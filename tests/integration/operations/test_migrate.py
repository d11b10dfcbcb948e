"""Migrating is safe to do twice at once, and never waits for long."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pytest

from outbox_mail.embedded import PostgresServer
from outbox_mail.errors import MigrationError, UsageError
from outbox_mail.operations.migrate import migrate, migration_sql, pending, pending_on

NAME = "operations_migrate"


@pytest.fixture
def empty_url(postgres: PostgresServer) -> Iterator[str]:
    """A database without tables."""
    postgres.create_database(NAME)
    yield postgres.url_for(NAME)
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {NAME} WITH (FORCE)")


def test_what_is_run_is_told_and_then_nothing_is_left(empty_url: str) -> None:
    assert next(revision.id for revision in pending(empty_url)) == "0001"
    assert pending(empty_url) == migrate(empty_url)
    assert migrate(empty_url) == pending(empty_url) == []
    with psycopg.connect(empty_url, autocommit=True) as connection:
        assert pending_on(connection) == []


def test_two_at_once_run_each_migration_once(empty_url: str) -> None:
    runs: list[int] = []
    threads = [threading.Thread(target=lambda: runs.append(len(migrate(empty_url)))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert sorted(runs)[:2] == [0, 0]
    assert sorted(runs)[2] > 0


def test_another_migration_that_hangs_is_not_waited_for_without_end(empty_url: str) -> None:
    with psycopg.connect(empty_url) as other:
        other.execute("SELECT pg_advisory_xact_lock(7035613)")
        with pytest.raises(MigrationError, match="has been running"):
            migrate(empty_url, wait_seconds=0.2)


def test_a_locked_table_gives_it_up_with_nothing_changed(empty_url: str) -> None:
    with psycopg.connect(empty_url) as other:
        # The name is taken by a transaction that does not end: CREATE TABLE waits for it.
        other.execute("CREATE TABLE email_files_to_remove (x int)")
        with pytest.raises(MigrationError, match="nothing was changed"):
            migrate(empty_url, lock_timeout_seconds=0.2)
        other.rollback()
    assert pending(empty_url) != []


def test_a_database_of_a_newer_version_is_left_alone(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("UPDATE outbox_alembic_version SET version_num = '9999'")
        with pytest.raises(MigrationError, match="9999"):
            pending_on(connection)
    for question in (pending, migrate):
        with pytest.raises(MigrationError, match="does not know"):
            question(database_url)


def test_a_server_that_is_not_there_is_the_driver_s_error() -> None:
    with pytest.raises(psycopg.OperationalError):
        migrate("postgresql://x:y@127.0.0.1:1/z")


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_a_timeout_that_would_wait_for_ever_is_refused(database_url: str, seconds: float) -> None:
    with pytest.raises(UsageError):
        migrate(database_url, wait_seconds=seconds)


def test_the_sql_needs_no_database_and_makes_the_same(empty_url: str) -> None:
    with psycopg.connect(empty_url, autocommit=True) as connection:
        connection.execute(migration_sql().encode())
    assert pending(empty_url) == []
