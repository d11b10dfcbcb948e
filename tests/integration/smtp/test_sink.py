"""The sink as a process of its own."""

from __future__ import annotations

import base64
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from outbox_mail.errors import ProviderError
from outbox_mail.mail.providers.base import Deadline, Provider
from outbox_mail.testing.mails import composed_mail

Connect = Callable[[str], Provider]
Start = Callable[..., tuple["subprocess.Popen[str]", int]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts the command; returns the process and its port."""
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: str) -> tuple[subprocess.Popen[str], int]:
        command = [sys.executable, "-m", "outbox_mail.testing.sink", *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout
        return process, int(process.stdout.readline())

    yield run
    for process in started:
        process.kill()
        process.communicate()


def test_every_accepted_mail_is_in_the_journal_even_after_kill_9(
    start: Start, connect: Connect, tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    process, port = start("--journal", str(journal), "--journal-data")
    provider = connect(f"smtp://127.0.0.1:{port}?tls=none")
    mails = [composed_mail("refused@example.com", f"ok{number}@example.com") for number in range(5)]
    for mail in mails:
        provider.send(mail, Deadline.after(10))
    process.kill()
    entries = [json.loads(line) for line in journal.read_text().splitlines()]
    assert [entry["message_id"] for entry in entries] == [mail.message_id for mail in mails]
    assert entries[3]["recipients"] == ["ok3@example.com"]
    assert [base64.b64decode(entry["data"]) for entry in entries] == [mail.data for mail in mails]


def test_it_ends_at_sigterm_and_says_what_clients_did_wrong(start: Start) -> None:
    process, port = start("--no-pipelining")
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.recv(1000)
        client.sendall(b"EHLO x\r\n")
        assert b"PIPELINING" not in client.recv(1000)
        client.sendall(b"MAIL FROM:<a@example.com>\r\nRCPT TO:<b@example.com>\r\n")
        assert client.recv(1000).startswith(b"250")
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=10)
    assert process.returncode == 0
    assert "violation: commands were pipelined without the offer" in said


def test_it_misbehaves_as_told(start: Start, connect: Connect) -> None:
    _, port = start("--fault", "mail:421:1", "--greylist-times", "1")
    provider = connect(f"smtp://127.0.0.1:{port}?tls=none")
    with pytest.raises(ProviderError, match="421"):
        provider.send(composed_mail(), Deadline.after(10))
    states = [
        provider.send(composed_mail("greylisted@example.com"), Deadline.after(10)).outcomes["greylisted@example.com"]
        for _ in range(2)
    ]
    assert [state.code for state in states] == ["451", ""]
