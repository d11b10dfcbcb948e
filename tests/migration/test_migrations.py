"""The migrations make what the metadata says, online and as SQL, and can be undone."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from outbox_mail.embedded import PostgresServer
from outbox_mail.mail.tables import metadata

NAME = "migration_test"


@pytest.fixture
def engine(postgres: PostgresServer) -> Iterator[sa.Engine]:
    """An empty database."""
    postgres.create_database(NAME)
    engine = sa.create_engine(postgres.url_for(NAME).replace("postgresql://", "postgresql+psycopg://"))
    yield engine
    engine.dispose()
    admin = sa.create_engine(
        postgres.url.replace("postgresql://", "postgresql+psycopg://"), isolation_level="AUTOCOMMIT"
    )
    with admin.connect() as connection:
        connection.execute(sa.text(f"DROP DATABASE {NAME} WITH (FORCE)"))
    admin.dispose()


def config(root: Path, connection: sa.Connection | None = None, output: io.StringIO | None = None) -> Config:
    made = Config(output_buffer=output)
    made.set_main_option("script_location", str(root / "migrations"))
    made.attributes["connection"] = connection
    return made


def shape(connection: sa.Connection) -> list[tuple[str, ...]]:
    """Columns, constraints, indexes and storage parameters, as PostgreSQL describes them."""
    query = """
        SELECT 'column', table_name, column_name, data_type, is_nullable, coalesce(column_default, '')
            FROM information_schema.columns WHERE table_schema = 'public'
        UNION ALL SELECT 'constraint', conrelid::regclass::text, conname, pg_get_constraintdef(oid), '', ''
            FROM pg_constraint WHERE connamespace = 'public'::regnamespace
        UNION ALL SELECT 'index', tablename, indexname, indexdef, '', '' FROM pg_indexes WHERE schemaname = 'public'
        UNION ALL SELECT 'storage', relname, coalesce(array_to_string(reloptions, ','), ''), '', '', ''
            FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
        ORDER BY 1, 2, 3"""
    return [tuple(row) for row in connection.execute(sa.text(query)) if "alembic" not in row[1]]


def test_the_migrations_make_what_the_metadata_says(engine: sa.Engine, root: Path) -> None:
    with engine.begin() as connection:
        metadata.create_all(connection)
        wanted = shape(connection)
        metadata.drop_all(connection)
        command.upgrade(config(root, connection), "head")
        command.check(config(root, connection))
        assert shape(connection) == wanted


def test_the_migrations_as_sql_make_the_same_tables(engine: sa.Engine, root: Path) -> None:
    output = io.StringIO()
    command.upgrade(config(root, output=output), "head", sql=True)
    with engine.begin() as connection:
        metadata.create_all(connection)
        wanted = shape(connection)
        metadata.drop_all(connection)
    sql = output.getvalue().replace("BEGIN;", "").replace("COMMIT;", "")
    with engine.begin() as connection:
        connection.exec_driver_sql(sql)
        assert shape(connection) == wanted


def test_the_migrations_can_be_undone(engine: sa.Engine, root: Path) -> None:
    with engine.begin() as connection:
        command.upgrade(config(root, connection), "head")
        command.downgrade(config(root, connection), "base")
        assert shape(connection) == []
