"""Threads against prefork: how fast the real worker drains a backlog, and what a mail costs in CPU.

``python -m benchmarks.pool [--mails N] [--json]``. Real parts on one machine: PostgreSQL with fsync, Redis, the relay,
one worker process (or two), and the SMTP sink as a process of its own, at 0 and 50 ms of provider latency. The relay's
start counts. Figures are ratios to the first row of the same run; the machine's speed drifts, so run it more than once.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import redis

from outbox_mail import enqueue_many
from outbox_mail.embedded import PostgresServer, RedisServer
from outbox_mail.operations.migrate import migrate
from outbox_mail.testing.deployment import environment_for

ROOT = Path(__file__).parent.parent
TICKS = os.sysconf("SC_CLK_TCK")
DEADLINE_SECONDS = 60.0


@dataclass(frozen=True)
class Variant:
    """One way to run workers."""

    name: str
    pool: str
    concurrency: int
    workers: int = 1


VARIANTS = (
    Variant("threads 8", "threads", 8),
    Variant("threads 16", "threads", 16),
    Variant("prefork 2", "prefork", 2),
    Variant("prefork 4", "prefork", 4),
    Variant("prefork 8", "prefork", 8),
    Variant("2 workers of threads 8", "threads", 8, 2),
)


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and its living and reaped children."""
    total = 0.0
    for each in (pid, *children(pid)):
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        total += sum(int(field) for field in fields[11:13]) / TICKS
    return total


def children(pid: int) -> list[int]:
    """The living descendants."""
    found = [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return found + [grandchild for each in found for grandchild in children(each)]


def start(arguments: list[str], environment: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", *arguments], cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT
        )


def measure(variant: Variant, url: str, broker: str, folder: Path, *, latency_ms: int, mails: int) -> dict[str, float]:
    """Mails a second from a backlog to all SENT, and worker CPU for each."""
    templates = folder / "templates" / "HELLO"
    templates.mkdir(parents=True, exist_ok=True)
    (templates / "subject.txt").write_text("Hello {{ name }}")
    (templates / "body.txt").write_text("Hello {{ name }}\n" * 20)
    (templates / "body.html").write_text("<p>Hello {{ name }}, how are you?</p>\n" * 120)
    sink = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "outbox_mail.testing.sink",
            "--port",
            "0",
            "--journal",
            str(folder / "journal"),
            "--latency-ms",
            str(latency_ms),
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
    )
    assert sink.stdout is not None
    port = int(sink.stdout.readline().split()[-1])
    environment = environment_for(url, broker, f"smtp://127.0.0.1:{port}?tls=none", folder / "templates")
    running = [sink]
    try:
        with psycopg.connect(url, autocommit=True) as connection, redis.Redis.from_url(broker) as client:
            client.flushall()
            connection.execute("TRUNCATE email_messages CASCADE")
            workers = [
                start(
                    [
                        "celery",
                        "-A",
                        "tasks",
                        "worker",
                        f"--pool={variant.pool}",
                        f"--concurrency={variant.concurrency}",
                        f"--hostname=w{number}@%h",
                    ],
                    environment,
                    folder / "worker.log",
                )
                for number in range(variant.workers)
            ]
            running += workers
            wait(
                lambda: (
                    count(
                        connection,
                        "SELECT count(*) FROM outbox_processes WHERE kind = 'worker'"
                        " AND progress_at > now() - interval '4 seconds'",
                    )
                    >= variant.workers
                )
            )
            enqueue_many(
                connection,
                [{"to": "a@example.com", "template": "HELLO", "parameters": {"name": "x" * 50}} for _ in range(mails)],
            )
            before = sum(cpu_seconds(worker.pid) for worker in workers)
            began = time.monotonic()
            running.append(start(["relay"], environment, folder / "relay.log"))
            wait(lambda: count(connection, "SELECT count(*) FROM email_messages WHERE status = 'SENT'") == mails)
            seconds = time.monotonic() - began
            spent = sum(cpu_seconds(worker.pid) for worker in workers) - before
        return {"mails_per_second": mails / seconds, "worker_cpu_ms": 1000 * spent / mails}
    finally:
        for child in running:
            child.terminate()
        for child in running:
            child.wait(30)


def count(connection: psycopg.Connection[Any], sql: str) -> int:
    row = connection.execute(sql.encode()).fetchone()
    return int(row[0]) if row else 0


def wait(condition: Any) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the backlog was not drained in time")
        time.sleep(0.02)


def main() -> int:
    """Print a table, or with ``--json`` one object as the last line."""
    parser = argparse.ArgumentParser(description="Threads against prefork in the real worker.")
    parser.add_argument("--mails", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    results: dict[str, dict[str, dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        with PostgresServer(folder / "postgres") as postgres, RedisServer(folder / "redis") as broker:
            migrate(postgres.url)
            for latency_ms in (0, 50):
                for variant in VARIANTS:
                    figures = measure(
                        variant, postgres.url, broker.url, folder, latency_ms=latency_ms, mails=chosen.mails
                    )
                    results.setdefault(f"{latency_ms} ms", {})[variant.name] = figures
                    base = results[f"{latency_ms} ms"][VARIANTS[0].name]
                    figures["ratio"] = figures["mails_per_second"] / base["mails_per_second"]
                    print(
                        f"{latency_ms:3} ms  {variant.name:24} {figures['mails_per_second']:7.0f}/s "
                        f"{figures['ratio']:5.2f}x  worker CPU {figures['worker_cpu_ms']:.2f} ms a mail",
                        file=sys.stderr if chosen.json else sys.stdout,
                        flush=True,
                    )
    if chosen.json:
        print(json.dumps({"results": results, "ok": True}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
