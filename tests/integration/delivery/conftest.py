"""Delivery on a real database, with a provider that does as it is told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.rows import dict_row

from outbox_mail import enqueue
from outbox_mail.mail.attachments.stores import Stores
from outbox_mail.mail.delivery import Countdown, Delivery
from outbox_mail.mail.providers.base import Provider
from outbox_mail.mail.providers.memory import MemoryProvider
from outbox_mail.mail.templates import Templates
from outbox_mail.outbox.database import Database
from outbox_mail.outbox.retry import RetryPolicy
from outbox_mail.outbox.signals import Signal, Signals


@dataclass
class Office:
    """A delivery with everything around it, and what it said."""

    connection: psycopg.Connection[Any]
    provider: MemoryProvider
    delivery: Delivery
    signals: list[Signal]
    folder: Path

    def enqueue(self, **message: Any) -> UUID:
        return enqueue(self.connection, **({"to": "ayse@example.com", "template": "HELLO"} | message))

    def deliver(self, id_: UUID) -> Countdown | None:
        return self.delivery.deliver(id_)

    def row(self, id_: UUID) -> dict[str, Any]:
        with self.connection.cursor(row_factory=dict_row) as cursor:
            found = cursor.execute("SELECT * FROM email_messages WHERE id = %s", (id_,)).fetchone()
        assert found is not None
        return found

    def due_now(self) -> None:
        self.connection.execute("UPDATE email_messages SET due_at = now() WHERE status = 'PENDING'")

    def said(self) -> list[str]:
        return [type(signal).__name__ for signal in self.signals]

    def template(self, name: str, *, body: str = "Hello {{ name }}", manifest: str = "") -> None:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        (folder / "subject.txt").write_text("Hello")
        (folder / "body.txt").write_text(body)
        if manifest:
            (folder / "template.toml").write_text(manifest)


def make_delivery(url: str, provider: Provider, folder: Path, signals: Signals, **changes: Any) -> Delivery:
    parts: dict[str, Any] = {
        "database": Database(url, signals, process="test", pool_size=4, timeout_seconds=5),
        "templates": Templates([folder]),
        "stores": Stores((f"file://{folder.parent}/files",), max_file_bytes=1000, max_mail_bytes=2000),
        "provider": provider,
        "retry_policy": RetryPolicy(max_attempts=3, schedule_seconds=(30.0, 120.0), jitter=0.2),
        "signals": signals,
        "deadline_seconds": 5.0,
        "default_sender": "Shop <shop@example.com>",
        "message_id_domain": "mail.example.com",
    }
    return Delivery(**(parts | changes))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The template folder; ``files`` beside it is the attachment store."""
    (tmp_path / "files").mkdir()
    folder = tmp_path / "templates"
    folder.mkdir()
    return folder


@pytest.fixture
def office(database_url: str, connection: psycopg.Connection[Any], folder: Path) -> Iterator[Office]:
    """An office with the template HELLO, which needs no parameter."""
    said: list[Signal] = []
    signals = Signals()
    signals.subscribe(said.append)
    provider = MemoryProvider()
    made = Office(connection, provider, make_delivery(database_url, provider, folder, signals), said, folder)
    made.template("HELLO", body="Hello {{ name | default('you') }}")
    yield made
    made.delivery.database.close()
