"""How the command behaves whatever it is given: exit codes, one line of error, nothing that steers a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from outbox_mail.testing.command import COMMAND, Command

Connection = psycopg.Connection[Any]

HOSTILE = "\x1b]0;owned\x07\x1b[31m[bold red]x[/bold red]\x9b2J\r\n\u202etxt.exe\u200b:smile:"


@pytest.fixture
def hostile(connection: Connection) -> str:
    """A row whose every text tries to steer the terminal."""
    id_ = str(uuid4())
    connection.execute(
        """INSERT INTO email_messages (id, "to", template, parameters, tags, status, failed_at, error_code,
                error_message, entity_type, entity_id, locale, sender, headers, outcomes, provider)
            VALUES (%(id)s, ARRAY[%(x)s], left(%(x)s, 200), jsonb_build_object(%(x)s::text, %(x)s::text), ARRAY[%(x)s],
                'FAILED', now(), %(x)s, %(x)s, %(x)s, %(x)s, %(x)s, %(x)s, jsonb_build_object(%(x)s::text, %(x)s::text),
                jsonb_build_object(%(x)s::text, %(x)s::text), %(x)s)""",
        {"id": id_, "x": HOSTILE},
    )
    connection.execute(
        """INSERT INTO email_attempts (message_id, claim, error_class, error_code, error_message, provider)
            VALUES (%(id)s, 1, %(x)s, %(x)s, %(x)s, %(x)s)""",
        {"id": id_, "x": HOSTILE},
    )
    connection.execute(
        "INSERT INTO outbox_holds (scope, value, reason, held_by) VALUES ('tag', %(x)s, %(x)s, %(x)s)", {"x": HOSTILE}
    )
    connection.execute(
        "INSERT INTO outbox_processes (name, kind, host, pid, doing) VALUES (%(x)s, 'relay', %(x)s, 1, %(x)s)",
        {"x": HOSTILE},
    )
    return id_


@pytest.mark.parametrize("command", [["status"], ["list"], ["show", "ID", "--parameters"], ["doctor"]])
def test_what_is_in_a_row_never_reaches_the_terminal_as_it_is(run: Command, hostile: str, command: list[str]) -> None:
    shown = run(*(hostile if part == "ID" else part for part in command))

    assert "\\x1b" in shown.out
    assert "[bold" in shown.out
    assert not set(shown.out) & {"\x1b", "\x9b", "\x07", "\r", "\u202e", "\u200b"}


@pytest.mark.parametrize("command", [["status"], ["list"], ["show", "ID", "--parameters"]])
def test_json_stays_json_whatever_is_in_a_row(run: Command, hostile: str, command: list[str]) -> None:
    told = run(*(hostile if part == "ID" else part for part in command), "--json")

    assert told.out.isascii()
    assert HOSTILE in str(told.json) or repr(HOSTILE)[1:-1] in str(told.json)


def test_on_a_real_terminal_only_the_command_s_own_colours_are_written(run: Command, hostile: str) -> None:
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [COMMAND, "show", hostile],
        stdout=follower,
        stderr=follower,
        env=run.environment(TERM="xterm-256color", COLUMNS="100"),
    )
    os.close(follower)
    written = b""
    while True:
        try:
            chunk = os.read(leader, 65536)
        except OSError:
            break
        if not chunk:
            break
        written += chunk
    process.wait(30)
    os.close(leader)

    assert process.returncode == 0
    assert b"\x1b[" in written
    assert b"\x1b]0;owned" not in written
    assert b"\x07" not in written
    assert "\x9b".encode() not in written
    assert "\u202e".encode() not in written


@pytest.mark.parametrize(
    "arguments",
    [
        ["show", "not-an-id"],
        ["show", "\x1b[31m"],
        ["list", "--limit", "0"],
        ["list", "--since", "yesterday"],
        ["list", "--since", "99999999d"],
        ["list", "--entity", "x"],
        ["list", "--after", "\x1b"],
        ["list", "--status", "LOST"],
        ["list", "--template", ""],
        ["requeue", "x", "--reason", "r"],
        ["pause", "all"],
        ["pause", "tag", "--reason", "r"],
        ["migrate", "--sql", "--json"],
        ["nonsense"],
        ["health", "nobody"],
    ],
)
def test_arguments_that_make_no_sense_exit_with_2_and_print_nothing(run: Command, arguments: list[str]) -> None:
    done = run(*arguments)

    assert (done.code, done.out) == (2, "")
    assert done.err
    assert "\x1b" not in done.err


def test_arguments_that_are_no_text_are_refused(run: Command) -> None:
    done = subprocess.run(
        [COMMAND, "list", "--template", b"\xff\xfe"],
        env=run.environment(),
        capture_output=True,
        check=False,
    )

    assert done.returncode == 2
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("url", "code", "said"),
    [
        (None, 2, "OUTBOX_MAIL_DATABASE_URL: is not set"),
        ("mysql://root:hunter2@h/x", 2, "must start with postgresql://"),
        ("postgresql://u:hunter2@127.0.0.1:1/x", 1, "Connection refused"),
        ("postgresql://u:hunter2@127.0.0.1:x/x", 1, "database:"),
    ],
)
def test_a_database_that_can_not_be_used_is_one_line_without_its_password(
    run: Command, url: str | None, code: int, said: str
) -> None:
    for command in (["status"], ["migrate"], ["list", "--json"]):
        done = run(*command, OUTBOX_MAIL_DATABASE_URL=url)
        assert (done.code, done.out) == (code, "")
        assert done.err.count("\n") == 1
        assert said in done.err
        assert "hunter2" not in done.err


def test_bad_settings_are_named_without_their_values(run: Command) -> None:
    done = run("doctor", OUTBOX_MAIL_BROKER_URL="hunter2://x", OUTBOX_MAIL_LEASE_SECONDS="none")

    assert done.code == 2
    assert "OUTBOX_MAIL_BROKER_URL" in done.err
    assert "OUTBOX_MAIL_LEASE_SECONDS" in done.err
    assert "hunter2" not in done.err


def test_a_reader_that_goes_away_is_no_error(run: Command, connection: Connection) -> None:
    connection.execute(
        """INSERT INTO email_messages ("to", template)
            SELECT ARRAY['a@example.com'], repeat('x', 200) FROM generate_series(1, 900)"""
    )
    process = subprocess.Popen(
        [COMMAND, "list", "--limit", "900"], env=run.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert b"Traceback" not in process.stderr.read()
    process.stderr.close()
    assert process.wait(30) != 0


@pytest.mark.parametrize("command", ["status", "list", "show", "requeue", "pause", "doctor", "migrate", "preview"])
def test_help_is_there_without_any_setting(run: Command, command: str) -> None:
    shown = run(command, "--help", OUTBOX_MAIL_DATABASE_URL=None)

    assert shown.code == 0
    assert shown.out.startswith("Usage: outbox-mail")


def test_help_loads_no_driver_and_no_settings() -> None:
    code = (
        "import sys; from outbox_mail.cli.app import app\n"
        "try: app(['list', '--help'])\n"
        "except SystemExit: pass\n"
        "print({'psycopg', 'pydantic_settings', 'alembic', 'jinja2'} & set(sys.modules))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert shown.stdout.endswith("set()\n")


def test_without_the_service_s_libraries_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise ModuleNotFoundError('no', name='typer')")
    done = subprocess.run(
        [sys.executable, "-c", "from outbox_mail.cli.main import run; run()"],
        env=Command().environment(PYTHONPATH=str(tmp_path)),
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 2
    assert "pip install 'outbox-mail[service]'" in done.stderr
    assert "Traceback" not in done.stderr
