"""``python -m relay`` as a process of its own: once, health, signals, and being killed at the worst moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from outbox_mail.embedded import RedisServer

Connection = psycopg.Connection[Any]


class Command:
    """Runs it from the checkout, as a deployment does."""

    def __init__(self, root: Path, environment: dict[str, str]) -> None:
        self.root = root
        self.environment = environment
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str, code: str | None = None, **changed: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, *(("-c", code) if code else ("-m", "relay")), *arguments],
            cwd=self.root,
            env={**os.environ, **self.environment, **changed},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def run(self, *arguments: str, **changed: str) -> tuple[int, str, str]:
        process = self.start(*arguments, **changed)
        out, err = process.communicate(timeout=30)
        return process.returncode, out, err


@pytest.fixture
def command(root: Path, database_url: str, redis_url: str) -> Iterator[Command]:
    made = Command(
        root,
        {
            "OUTBOX_MAIL_DATABASE_URL": database_url,
            "OUTBOX_MAIL_BROKER_URL": redis_url,
            "OUTBOX_MAIL_BROKER_TIMEOUT_SECONDS": "2",
        },
    )
    yield made
    for process in made.started:
        process.kill()
        process.communicate()


def test_once_publishes_what_is_due_and_leaves(command: Command, broker: Any, rows: Any) -> None:
    expected = rows.add(3)

    code, out, _ = command.run("--once")

    assert (code, out) == (0, "relay: 3 published\n")
    assert broker.ids() == expected
    assert rows.value("SELECT count(*) FROM outbox_processes") == 0


def test_once_says_what_is_down_and_shows_no_password(command: Command) -> None:
    code, _, err = command.run("--once", OUTBOX_MAIL_BROKER_URL="redis://:topsecret@127.0.0.1:1/0")
    assert code == 1
    assert "Connection refused" in err
    assert "topsecret" not in err

    code, _, err = command.run("--once", OUTBOX_MAIL_DATABASE_URL="postgresql://me:topsecret@127.0.0.1:1/x")
    assert code == 1
    assert "topsecret" not in err


def test_help_tells_what_it_does_without_any_setting(command: Command) -> None:
    code, out, _ = command.run("--help", OUTBOX_MAIL_DATABASE_URL="")

    assert code == 0
    assert {"--once", "--health"} <= set(out.replace("[", " ").replace("]", " ").split())


def test_a_wrong_setting_is_named(command: Command) -> None:
    code, _, err = command.run("--once", OUTBOX_MAIL_RELAY_WINDOW="many")

    assert code == 2
    assert "OUTBOX_MAIL_RELAY_WINDOW" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_within_seconds(
    command: Command, broker: Any, rows: Any, until_true: Any, number: signal.Signals
) -> None:
    process = command.start(OUTBOX_MAIL_RELAY_POLL_SECONDS="30")
    rows.add()
    until_true(broker.ids)

    process.send_signal(number)
    started = time.monotonic()

    assert process.wait(10) == 0
    assert time.monotonic() - started < 3
    assert rows.value("SELECT count(*) FROM outbox_processes") == 0


def test_sigterm_ends_it_while_the_broker_hangs(command: Command, rows: Any, until_true: Any, tmp_path: Path) -> None:
    with RedisServer(tmp_path / "own") as server:
        process = command.start(OUTBOX_MAIL_BROKER_URL=server.url, OUTBOX_MAIL_BROKER_TIMEOUT_SECONDS="60")
        until_true(lambda: rows.value("SELECT count(*) FROM outbox_relay_state WHERE asleep"))
        os.kill(server.pid, signal.SIGSTOP)
        try:
            rows.add()
            time.sleep(1.5)
            process.terminate()
            assert process.wait(15) == 0
        finally:
            os.kill(server.pid, signal.SIGCONT)
    assert rows.out() == 0


def test_sigterm_ends_it_while_broker_and_database_are_down(command: Command, until_true: Any) -> None:
    process = command.start(
        OUTBOX_MAIL_BROKER_URL="redis://127.0.0.1:1/0", OUTBOX_MAIL_DATABASE_URL="postgresql://x:y@127.0.0.1:1/x"
    )
    assert process.stderr is not None
    assert "database_unavailable" in "".join(process.stderr.readline() for _ in range(2))

    process.terminate()

    assert process.wait(5) == 0


KILLED_BETWEEN = """
import os, signal
from outbox_mail.outbox.signals import Signals
from outbox_mail.settings import load_settings
from relay.compose_root import compose
from relay.publisher import Publisher

publish = Publisher.publish
def publish_and_die(self, hints, at):
    publish(self, hints, at)
    os.kill(os.getpid(), signal.SIGKILL)
Publisher.publish = publish_and_die
compose(load_settings(), Signals()).run()
"""


def test_a_relay_killed_between_publish_and_mark_publishes_again(
    command: Command, broker: Any, rows: Any, until_true: Any
) -> None:
    expected = rows.add(5)

    assert command.start(code=KILLED_BETWEEN).wait(20) == -signal.SIGKILL
    assert broker.ids() == expected
    assert rows.out() == 0

    def published_again() -> bool:
        # The server takes a moment to notice that the session is gone, and holds the locks until then.
        command.run("--once")
        return bool(rows.out() == 5)

    until_true(published_again, seconds=30)
    assert broker.ids() == expected * 2


def test_health_tells_a_relay_that_works_from_none_and_from_one_that_hangs(
    command: Command, rows: Any, until_true: Any
) -> None:
    changed = {"OUTBOX_MAIL_HEALTH_STALE_SECONDS": "6", "OUTBOX_MAIL_RELAY_POLL_SECONDS": "30"}
    code, _, err = command.run("--health", **changed)
    assert code == 1
    assert "no relay runs" in err

    process = command.start(**changed)
    until_true(lambda: rows.value("SELECT count(*) FROM outbox_processes WHERE doing = 'idle'"))
    began = rows.value("SELECT extract(epoch FROM now())::float8")
    until_true(lambda: rows.value("SELECT extract(epoch FROM now())::float8") - began > 7, seconds=15)
    code, out, _ = command.run("--health", **changed)
    assert code == 0, "an idle relay is healthy"
    assert "idle" in out

    process.send_signal(signal.SIGSTOP)
    until_true(
        lambda: rows.value("SELECT count(*) FROM outbox_processes WHERE progress_at < now() - interval '6 seconds'"),
        seconds=15,
    )
    code, _, err = command.run("--health", **changed)
    assert code == 1
    assert f":{process.pid}" in err


def test_health_leaves_out_a_relay_that_was_killed(command: Command, rows: Any, until_true: Any) -> None:
    first = command.start()
    until_true(lambda: rows.value("SELECT count(*) FROM outbox_processes"))
    first.kill()
    first.wait()
    assert command.run("--health")[0] == 1

    command.start()
    until_true(lambda: rows.value("SELECT count(*) FROM outbox_processes") == 2)

    assert command.run("--health")[0] == 0


def test_health_says_that_the_database_is_down(command: Command) -> None:
    code, _, err = command.run("--health", OUTBOX_MAIL_DATABASE_URL="postgresql://me:topsecret@127.0.0.1:1/x")

    assert code == 1
    assert "the database can't be asked" in err
    assert "topsecret" not in err


def test_it_imports_no_task(root: Path) -> None:
    code = "import sys, relay.__main__; print([name for name in sys.modules if name.split('.')[0] == 'tasks'])"
    out = subprocess.run([sys.executable, "-c", code], cwd=root, check=True, capture_output=True, text=True).stdout
    assert out.strip() == "[]"
