"""The service's real processes for tests: relay, Celery worker and beat as children, and what they did."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from outbox_mail.testing.sink import Sink

_LEAVE_SECONDS = 15
_LOG_CHARS = 3000


@dataclass(frozen=True, slots=True)
class Ledger:
    """What the table says against what the SMTP server wrote down."""

    statuses: dict[str, int]
    lost: int
    """Committed messages that are neither SENT nor FAILED."""
    sent_but_not_accepted: int
    accepted_but_not_sent: int
    copies: int
    """Mails beyond the first for a message."""


@dataclass
class Deployment:
    """Starts the service's processes from the checkout ``root``; their logs go to ``folder``."""

    root: Path
    folder: Path
    environment: dict[str, str]
    database_url: str
    sink: Sink
    children: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start ``python -m arguments`` with further environment variables."""
        with (self.folder / f"{len(self.children)}.log").open("wb") as log:
            child = subprocess.Popen(  # noqa: S603 - this interpreter, and what the test says
                [sys.executable, "-m", *arguments],
                cwd=self.root,
                env=self.environment | environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.children.append(child)
        return child

    def worker(self, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start a worker."""
        return self.start("celery", "-A", "tasks", "worker", *arguments, **environment)

    def relay(self, **environment: str) -> subprocess.Popen[bytes]:
        """Start a relay."""
        return self.start("relay", **environment)

    def beat(self, **environment: str) -> subprocess.Popen[bytes]:
        """Start a beat with a schedule file of its own."""
        schedule = self.folder / f"beat-{len(self.children)}"
        return self.start("celery", "-A", "tasks", "beat", f"--schedule={schedule}", **environment)

    def log(self, child: subprocess.Popen[bytes]) -> str:
        """What a child printed so far."""
        return (self.folder / f"{self.children.index(child)}.log").read_text(errors="replace")

    def query(self, sql: str, parameters: Any = None) -> list[tuple[Any, ...]]:
        """Ask the database, on a connection of its own."""
        with psycopg.connect(self.database_url, autocommit=True, connect_timeout=5) as connection:
            return connection.execute(sql.encode(), parameters).fetchall()

    def statuses(self) -> dict[str, int]:
        """How many messages are in each status."""
        return dict(self.query("SELECT status, count(*) FROM email_messages GROUP BY 1"))

    def until(self, condition: Callable[[], object], seconds: float = 30) -> float:
        """Wait until ``condition`` holds and return how long it took; fails with everybody's log after ``seconds``."""
        started_at = time.monotonic()
        while not condition():
            if time.monotonic() - started_at > seconds:
                logs = "\n".join(f"--- {child.args!r}\n{self.log(child)[-_LOG_CHARS:]}" for child in self.children)
                raise AssertionError(f"not within {seconds} s: {self.statuses()}\n{logs}")
            time.sleep(0.05)
        return time.monotonic() - started_at

    def all_sent(self, count: int) -> Callable[[], bool]:
        """Whether there are ``count`` messages and all are SENT."""
        return lambda: self.statuses() == {"SENT": count}

    def ledger(self) -> Ledger:
        """Compare the table with what the sink wrote down."""
        rows = {f"<{id_.hex}@": status for id_, status in self.query("SELECT id, status FROM email_messages")}
        accepted = Counter(mail.message_id.partition("@")[0] + "@" for mail in self.sink.accepted)
        return Ledger(
            statuses=dict(Counter(rows.values())),
            lost=sum(status not in ("SENT", "FAILED") for status in rows.values()),
            sent_but_not_accepted=sum(status == "SENT" and id_ not in accepted for id_, status in rows.items()),
            accepted_but_not_sent=sum(rows.get(id_) != "SENT" for id_ in accepted),
            copies=sum(accepted.values()) - len(accepted),
        )

    def end(self) -> None:
        """Tell all that still run to leave, and kill those that don't."""
        for child in self.children:
            if child.poll() is None:
                child.send_signal(signal.SIGCONT)
                child.send_signal(signal.SIGTERM)
        for child in self.children:
            try:
                child.wait(_LEAVE_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def environment_for(database_url: str, broker_url: str, provider_url: str, templates: Path) -> dict[str, str]:
    """An environment in which retries, reaping and republishing are quick."""
    return dict(os.environ) | {
        "OUTBOX_MAIL_DATABASE_URL": database_url,
        "OUTBOX_MAIL_BROKER_URL": broker_url,
        "OUTBOX_MAIL_PROVIDER_URL": provider_url,
        "OUTBOX_MAIL_TEMPLATES": str(templates),
        "OUTBOX_MAIL_RETRY_SCHEDULE_SECONDS": "0.5,1,2",
        "OUTBOX_MAIL_REPUBLISH_SECONDS": "5",
        "OUTBOX_MAIL_RELAY_POLL_SECONDS": "0.5",
        "OUTBOX_MAIL_WORKER_CONCURRENCY": "4",
    }
