"""Brings a database's tables to this version. Safe to start twice at once, and to start again after any failure."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psycopg
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.script.revision import RevisionError
from alembic.util import CommandError
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

import outbox_mail
from outbox_mail.errors import MigrationError, UsageError

VERSION_TABLE: Final = "outbox_alembic_version"
LOCK_TIMEOUT_SECONDS: Final = 5.0
WAIT_SECONDS: Final = 120.0

# A number that no other software is likely to lock; the same for every version, so that any two exclude each other.
_ADVISORY_LOCK: Final = 7_035_613


@dataclass(frozen=True, slots=True)
class Revision:
    """One migration: its number and what it does."""

    id: str
    title: str


def migrate(
    database_url: str, *, lock_timeout_seconds: float = LOCK_TIMEOUT_SECONDS, wait_seconds: float = WAIT_SECONDS
) -> list[Revision]:
    """Run what is not yet run, all in one transaction, and return it, oldest first; empty when all was done already.

    An advisory lock lets one migrate at a time: a second one waits up to ``wait_seconds`` and then finds nothing to do.
    A change that must wait for a table's lock for longer than ``lock_timeout_seconds`` is given up, so that it never
    stops the producers' INSERTs that would queue behind it. Raises ``MigrationError`` then, and when the database was
    migrated by a newer version; ``psycopg.OperationalError`` when it can't be reached.
    """
    with _transaction(database_url) as connection:
        _set_lock_timeout(connection, wait_seconds)
        with _giving_up(
            f"database: another migration has been running for over {wait_seconds:g} s. See whether it hangs "
            "(pg_stat_activity), then run this again"
        ):
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
        waiting = _waiting(connection)
        if waiting:
            _set_lock_timeout(connection, lock_timeout_seconds)
            with _giving_up(
                f"database: a table stayed locked by others for over {lock_timeout_seconds:g} s; nothing was changed. "
                "Run this again at a quieter time, or end the long transaction (outbox-mail doctor names it)"
            ):
                command.upgrade(_config(connection), "head")
        return waiting


def pending(database_url: str) -> list[Revision]:
    """What ``migrate`` would run now. Changes nothing, takes no lock. Raises as ``migrate`` does."""
    with _transaction(database_url) as connection:
        return _waiting(connection)


def pending_on(connection: psycopg.Connection[object]) -> list[Revision]:
    """``pending``, asked on a psycopg connection. Raises ``MigrationError`` for a database of a newer version."""
    found = connection.execute("SELECT to_regclass(%s)", [VERSION_TABLE]).fetchone()
    versions: list[str] = []
    if found is not None and found != (None,):
        versions = [row[0] for row in connection.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchall()]  # type: ignore[index]
    return _after(versions)


def migration_sql() -> str:
    """The migrations as SQL for an empty database, for people who run it by hand. Needs no database."""
    output = io.StringIO()
    command.upgrade(_config(output=output), "head", sql=True)
    return output.getvalue()


def migrations_folder() -> Path:
    """Where the migrations are: inside the installed package, or beside it in a checkout."""
    package = Path(outbox_mail.__file__).parent
    for folder in (package / "migrations", package.parent / "migrations"):
        if (folder / "env.py").is_file():
            return folder
    raise MigrationError(f"migrations: not found in {package}. Install the package again; its files are not complete")


def _config(connection: Connection | None = None, *, output: io.StringIO | None = None) -> Config:
    # Alembic reads % in options as interpolation.
    config = Config(output_buffer=output)
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def _waiting(connection: Connection) -> list[Revision]:
    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    return _after(list(context.get_current_heads()))


def _after(versions: list[str]) -> list[Revision]:
    scripts = ScriptDirectory.from_config(_config())
    try:
        known = (
            {script.revision for script in scripts.iterate_revisions(tuple(versions), "base")} if versions else set()
        )
    except (CommandError, RevisionError):
        raise MigrationError(
            f"database: it was migrated to {', '.join(versions)}, which this version does not know. "
            "Use the version of outbox-mail that migrated it, or a newer one"
        ) from None
    every = reversed(list(scripts.walk_revisions("base", "heads")))
    return [Revision(script.revision, script.doc) for script in every if script.revision not in known]


def _set_lock_timeout(connection: Connection, seconds: float) -> None:
    if not 0 < seconds < 86_400:
        raise UsageError("lock timeout", "must be above 0 and below 86400 seconds", "0 would wait for ever")
    milliseconds = str(math.ceil(seconds * 1000))
    connection.execute(text("SELECT set_config('lock_timeout', :ms, true)"), {"ms": milliseconds})


@contextmanager
def _transaction(database_url: str) -> Iterator[Connection]:
    """A transaction through SQLAlchemy, with the driver's own errors instead of SQLAlchemy's wrapping of them.

    The URL goes to libpq as it is, so that all of its options work (sslmode, several hosts, service files).
    """
    engine = create_engine(
        "postgresql+psycopg://",
        creator=lambda: psycopg.connect(database_url, prepare_threshold=None, application_name="outbox-mail migrate"),
        poolclass=NullPool,
    )
    try:
        with engine.begin() as connection:
            yield connection
    except DBAPIError as error:
        raise error.orig or error from None
    finally:
        engine.dispose()


@contextmanager
def _giving_up(message: str) -> Iterator[None]:
    """Says ``message`` when the lock timeout is over."""
    try:
        yield
    except DBAPIError as error:
        if not isinstance(error.orig, psycopg.errors.LockNotAvailable):
            raise
        raise MigrationError(message) from None
