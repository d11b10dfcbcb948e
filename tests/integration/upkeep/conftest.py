"""A mail outbox with finished rows, a folder of owned files, and a subscriber that writes down what is said."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb

from outbox_mail import Attachment
from outbox_mail.mail.attachments.stores import Stores
from outbox_mail.mail.retention import retain_mail
from outbox_mail.outbox.columns import STATUS_STAMPS
from outbox_mail.outbox.signals import Signal, Signals
from outbox_mail.outbox.status import Status


@dataclass
class Keeper:
    """What upkeep works on, and what it said."""

    connection: psycopg.Connection[Any]
    database_url: str
    folder: Path
    stores: Stores
    signals: Signals = field(default_factory=Signals)
    said: list[Signal] = field(default_factory=list)

    @property
    def store(self) -> str:
        """The allowed store."""
        return f"file://{self.folder}"

    def insert(self, status: Status, days: float, *attachments: object, **columns: object) -> UUID:
        """A row that has been in ``status`` for so long."""
        values: dict[str, object] = {"id": uuid4(), "to": ["a@example.com"], "template": "T", "status": status.value}
        values |= {"claims": 0 if status is Status.PENDING else 1, "attachments": Jsonb(list(attachments))}
        if status is Status.FAILED:
            values["error_code"] = "smtp_550"
        values |= columns
        stamps = ["created_at", "due_at", *([STATUS_STAMPS[status]] if status in STATUS_STAMPS else [])]
        names = ", ".join(f'"{name}"' for name in [*values, *stamps])
        places = ", ".join(
            [*(f"%({name})s" for name in values), *("now() - make_interval(secs => %(s)s)",) * len(stamps)]
        )
        self.connection.execute(
            f"INSERT INTO email_messages ({names}) VALUES ({places})".encode(), {**values, "s": days * 86_400}
        )
        return UUID(str(values["id"]))

    def insert_many(self, status: Status, count: int, days: float) -> None:
        """That many rows, a second apart."""
        stamp = STATUS_STAMPS[status]
        self.connection.execute(
            f"""INSERT INTO email_messages ("to", template, status, claims, error_code, {stamp})
                SELECT ARRAY['a@example.com'], 'T', %s, 1, %s, now() - make_interval(secs => %s - n)
                FROM generate_series(1, %s) n""".encode(),
            [status.value, "smtp_550" if status is Status.FAILED else None, days * 86_400, count],
        )

    def owned(self, data: bytes = b"x") -> dict[str, Any]:
        """A new owned file, as a row refers to it."""
        return Attachment.from_bytes(data, filename="a.txt", store=self.store).as_json()

    def path(self, attachment: dict[str, Any]) -> Path:
        """Where a file is."""
        return Path(str(attachment["storage_ref"]).removeprefix("file://"))

    def retain(self, **changes: Any) -> int:
        """One run of retention: SENT after 60 days, FAILED after 90, files at once."""
        wanted: dict[str, Any] = {
            "sent_days": 60,
            "failed_days": 90,
            "batch_size": 100,
            "archive": False,
            "grace_seconds": 0,
            "pause_seconds": 0,
        }
        return retain_mail(self.connection, self.stores, self.signals, **wanted | changes)

    def ids(self, table: str = "email_messages") -> set[UUID]:
        """What is in a table."""
        return {row[0] for row in self.connection.execute(f"SELECT id FROM {table}".encode()).fetchall()}

    def recorded(self) -> list[str]:
        """The files that wait for their removal."""
        rows = self.connection.execute("SELECT storage_ref FROM email_files_to_remove ORDER BY 1").fetchall()
        return [row[0] for row in rows]


@pytest.fixture
def keeper(connection: psycopg.Connection[Any], database_url: str, tmp_path: Path) -> Keeper:
    """An empty outbox and an empty store."""
    folder = tmp_path / "files"
    folder.mkdir()
    made = Keeper(connection, database_url, folder, Stores([f"file://{folder}"]))
    made.signals.subscribe(made.said.append)
    return made
