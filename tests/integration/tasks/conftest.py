"""The real processes: a Celery worker, a relay and beat as children, an SMTP sink, and their environment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest

from outbox_mail.testing.sink import Sink


@dataclass
class Deployment:
    """Starts the service's processes in the checkout; ends those that still run."""

    root: Path
    folder: Path
    environment: dict[str, str]
    connection: psycopg.Connection[Any]
    sink: Sink
    children: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
        log = (self.folder / f"{len(self.children)}.log").open("wb")
        child = subprocess.Popen(
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
        return self.start("celery", "-A", "tasks", "worker", *arguments, **environment)

    def relay(self, **environment: str) -> subprocess.Popen[bytes]:
        return self.start("relay", **environment)

    def beat(self, **environment: str) -> subprocess.Popen[bytes]:
        return self.start(
            "celery", "-A", "tasks", "beat", f"--schedule={self.folder / f'beat-{len(self.children)}'}", **environment
        )

    def log(self, child: subprocess.Popen[bytes]) -> str:
        return (self.folder / f"{self.children.index(child)}.log").read_text(errors="replace")

    def until(self, condition: Callable[[], object], seconds: float = 30) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                logs = "\n".join(f"--- {child.args!r}\n{self.log(child)[-3000:]}" for child in self.children)
                pytest.fail(f"not within {seconds} s\n{self.statuses()}\n{logs}")
            time.sleep(0.05)

    def statuses(self) -> dict[str, int]:
        return dict(self.connection.execute("SELECT status, count(*) FROM email_messages GROUP BY 1").fetchall())

    def all_sent(self, count: int) -> Callable[[], bool]:
        return lambda: self.statuses() == {"SENT": count}

    def end(self) -> None:
        for child in self.children:
            if child.poll() is None:
                child.send_signal(signal.SIGTERM)
        for child in self.children:
            try:
                child.wait(15)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


@pytest.fixture
def deployment(
    database_url: str, redis_url: str, connection: psycopg.Connection[Any], tmp_path: Path, root: Path
) -> Iterator[Deployment]:
    """An environment with quick retries, the template HELLO, and a sink."""
    template = tmp_path / "templates" / "HELLO"
    template.mkdir(parents=True)
    (template / "subject.txt").write_text("Hello {{ name }}")
    (template / "body.txt").write_text("Hello {{ name }}")
    with Sink() as sink:
        environment = os.environ | {
            "OUTBOX_MAIL_DATABASE_URL": database_url,
            "OUTBOX_MAIL_BROKER_URL": redis_url,
            "OUTBOX_MAIL_PROVIDER_URL": sink.url,
            "OUTBOX_MAIL_TEMPLATES": str(tmp_path / "templates"),
            "OUTBOX_MAIL_RETRY_SCHEDULE_SECONDS": "0.5,1,2",
            "OUTBOX_MAIL_REPUBLISH_SECONDS": "5",
            "OUTBOX_MAIL_RELAY_POLL_SECONDS": "0.5",
            "OUTBOX_MAIL_WORKER_CONCURRENCY": "4",
        }
        made = Deployment(root, tmp_path, dict(environment), connection, sink)
        yield made
        made.end()
