"""Real parts for every test: one private PostgreSQL and one Redis server a run, a fresh migrated database a test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from outbox_mail.embedded import PostgresServer, RedisServer
from outbox_mail.operations.migrate import migrate
from outbox_mail.testing.deployment import Deployment, environment_for
from outbox_mail.testing.sink import Sink

# Nothing in a test database outlives the run: durability would only cost time.
_UNSAFE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
_TEMPLATE = "migrated"
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """The run's PostgreSQL server, with a migrated database to copy."""
    with PostgresServer(tmp_path_factory.mktemp("postgres"), settings=_UNSAFE) as server:
        server.create_database(_TEMPLATE)
        migrate(server.url_for(_TEMPLATE))
        yield server


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """The run's Redis server."""
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def database_url(postgres: PostgresServer) -> Iterator[str]:
    """A fresh migrated database, dropped afterwards with whoever is still connected."""
    name = f"test_{next(_numbers)}"
    postgres.create_database(name, template=_TEMPLATE)
    yield postgres.url_for(name)
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture
def connection(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A psycopg connection in autocommit, as the service uses it."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    """The Redis server, emptied."""
    import redis

    with redis.Redis.from_url(redis_server.url) as client:
        client.flushall()
    return redis_server.url


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return Path(__file__).parent.parent


@pytest.fixture
def hello(tmp_path: Path) -> Path:
    """A folder of templates with HELLO, which needs a name."""
    template = tmp_path / "templates" / "HELLO"
    template.mkdir(parents=True)
    (template / "subject.txt").write_text("Hello {{ name }}")
    (template / "body.txt").write_text("Hello {{ name }}")
    return tmp_path / "templates"


@pytest.fixture
def deployment(database_url: str, redis_url: str, tmp_path: Path, hello: Path, root: Path) -> Iterator[Deployment]:
    """The service's real processes, not started yet, with quick retries and an SMTP sink."""
    with Sink() as sink:
        made = Deployment(root, tmp_path, environment_for(database_url, redis_url, sink.url, hello), database_url, sink)
        yield made
        made.end()
