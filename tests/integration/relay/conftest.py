"""Relays on the real servers, run by the turn or in a thread, and what a worker would find in the broker."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import psycopg
import pytest
import redis
from celery import Celery

from outbox_mail.mail.outbox import MAIL
from outbox_mail.names import QUEUES, Priority
from outbox_mail.outbox.signals import Signal, Signals
from outbox_mail.settings import Settings
from relay.compose_root import sessions
from relay.loop import Relay
from relay.publisher import Publisher


def until(condition: Callable[[], Any], seconds: float = 10) -> Any:
    """Wait for a condition and return its value; fail when the deadline passes."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.005)
    return value


@dataclass
class Broker:
    """What is in the queues."""

    client: Any

    def messages(self, priority: Priority = Priority.NORMAL) -> list[dict[str, Any]]:
        """The messages of a queue, the next to be consumed first."""
        return [json.loads(raw) for raw in reversed(self.client.lrange(QUEUES[priority], 0, -1))]

    def ids(self, priority: Priority = Priority.NORMAL) -> list[UUID]:
        return [UUID(id_) for message in self.messages(priority) for id_ in ids_of(message)]

    def all_ids(self) -> list[UUID]:
        return [id_ for priority in Priority for id_ in self.ids(priority)]


def ids_of(message: dict[str, Any]) -> list[str]:
    """The ids that a message carries, read as a worker reads them."""
    args, kwargs, _ = json.loads(base64.b64decode(message["body"]))
    assert kwargs == {}
    (ids,) = args
    assert isinstance(ids, list)
    return ids


@dataclass
class Running:
    """A relay in a thread."""

    relay: Relay
    signals: list[Signal]
    thread: threading.Thread
    errors: list[BaseException] = field(default_factory=list)

    def stop(self, seconds: float = 10) -> None:
        self.relay.stop()
        self.thread.join(seconds)
        assert not self.thread.is_alive(), "the relay did not leave"
        assert self.errors == []


class Relays:
    """Makes relays on one database and one broker."""

    def __init__(self, database_url: str, broker_url: str) -> None:
        self.database_url = database_url
        self.broker_url = broker_url
        self.running: list[Running] = []

    def settings(self, **changed: Any) -> Settings:
        return Settings(
            **{
                "database_url": self.database_url,
                "broker_url": self.broker_url,
                "broker_timeout_seconds": 2,
                "relay_backoff_max_seconds": 0.5,
                **changed,
            }
        )

    def make(self, **changed: Any) -> tuple[Relay, list[Signal]]:
        settings = self.settings(**changed)
        app = Celery("test-relay", broker=settings.broker_url.get_secret_value(), set_as_current=False)
        signals = Signals()
        seen: list[Signal] = []
        signals.subscribe(seen.append)
        publisher = Publisher(app, timeout_seconds=settings.broker_timeout_seconds)
        return Relay(settings, MAIL, sessions(settings), publisher, signals, provider="memory"), seen

    def once(self, **changed: Any) -> int:
        relay, _ = self.make(**changed)
        return relay.run_once()

    def start(self, **changed: Any) -> Running:
        relay, seen = self.make(**changed)
        errors: list[BaseException] = []

        def run() -> None:
            try:
                relay.run()
            except BaseException as error:  # noqa: BLE001 - the test looks at it
                errors.append(error)

        running = Running(relay, seen, threading.Thread(target=run, daemon=True), errors)
        running.thread.start()
        self.running.append(running)
        return running


@pytest.fixture
def relays(database_url: str, redis_url: str) -> Iterator[Relays]:
    """Relays that are stopped at the end."""
    made = Relays(database_url, redis_url)
    yield made
    for running in made.running:
        running.stop()


@pytest.fixture
def broker(redis_url: str) -> Iterator[Broker]:
    with redis.Redis.from_url(redis_url) as client:
        yield Broker(client)


class Rows:
    """Puts rows into the outbox and looks at them."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection

    def add(self, count: int = 1, *, priority: Priority = Priority.NORMAL, **columns: Any) -> list[UUID]:
        """Insert rows, the first due first; ``due_in`` and ``expires_in`` are seconds from now."""
        due_in = columns.pop("due_in", 0.0)
        expires_in = columns.pop("expires_in", None)
        names = "".join(f', "{name}"' for name in columns)
        values = "".join(f", %({name})s" for name in columns)
        rows = self.connection.execute(
            f"""INSERT INTO email_messages (id, "to", template, priority, due_at, expires_at, ordering_seq{names})
                SELECT gen_random_uuid(), ARRAY['a@example.com'], 'T', %(priority)s,
                    now() + make_interval(secs => %(due_in)s) - (%(count)s - n) * interval '1 microsecond',
                    now() + make_interval(secs => %(expires_in)s),
                    CASE WHEN %(ordered)s THEN nextval('outbox_turns_seq_seq') END{values}
                FROM generate_series(1, %(count)s) n RETURNING id, due_at""".encode(),
            {
                "count": count,
                "priority": priority.value,
                "due_in": due_in,
                "expires_in": expires_in,
                "ordered": "ordering_key" in columns,
                **columns,
            },
        ).fetchall()
        return [id_ for id_, _ in sorted(rows, key=lambda row: row[1])]

    def value(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        row = self.connection.execute(sql.encode(), parameters).fetchone()
        assert row is not None
        return row[0]

    def column(self, name: str, id_: UUID) -> Any:
        return self.value(f"SELECT {name} FROM email_messages WHERE id = %s", [id_])

    def count(self, condition: str = "true") -> int:
        count: int = self.value(f"SELECT count(*) FROM email_messages WHERE {condition}")
        return count

    def out(self) -> int:
        return self.count("published_at IS NOT NULL AND status = 'PENDING'")


@pytest.fixture
def rows(connection: psycopg.Connection[Any]) -> Rows:
    return Rows(connection)


@pytest.fixture
def until_true() -> Callable[..., Any]:
    """``until``, for test modules, which can't import from here."""
    return until
