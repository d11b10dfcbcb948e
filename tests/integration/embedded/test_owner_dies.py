"""``python -m outbox_mail.embedded`` and its end: by Ctrl-C, by SIGTERM, by kill -9, at any moment."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
import redis

_DEADLINE_SECONDS = 10.0


class _Owner:
    """One run of the command, and the processes below it as they were when it had printed its URLs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-m", "outbox_mail.embedded", "--folder", folder],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.servers: list[int] = []
        self.everything: list[int] = []

    def urls(self) -> tuple[str, str]:
        """Waits until both are printed."""
        assert self.process.stdout is not None
        lines = [self.process.stdout.readline(), self.process.stdout.readline()]
        database = re.fullmatch(r"export OUTBOX_MAIL_DATABASE_URL=(postgresql://\S+)\n", lines[0])
        broker = re.fullmatch(r"export OUTBOX_MAIL_BROKER_URL=(redis://\S+)\n", lines[1])
        assert database, lines
        assert broker, lines
        self.servers = _children(self.process.pid)
        self.everything = [*self.servers, *(child for pid in self.servers for child in _children(pid))]
        return database[1], broker[1]

    def close(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=_DEADLINE_SECONDS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all: each test leaves it in the state that its own way of ending brings, and the next must cope."""
    return tmp_path_factory.mktemp("state")


@pytest.fixture
def run() -> Iterator[Callable[[Path], _Owner]]:
    owners: list[_Owner] = []

    def begin(folder: Path) -> _Owner:
        owners.append(_Owner(folder))
        return owners[-1]

    yield begin
    for owner in owners:
        owner.close()


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _alive(pid: int) -> bool:
    try:
        # The field after the name, which may itself hold spaces and brackets.
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def _until(condition: Callable[[], object], seconds: float = _DEADLINE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "not within the deadline"
        time.sleep(0.02)


def _all_gone(pids: list[int]) -> bool:
    return not any(_alive(pid) for pid in pids)


def _started_below(folder: Path) -> list[int]:
    """Processes whose command line names the folder: launchers, initdb, postgres and valkey-server at their start."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if os.fsencode(folder) in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def test_after_kill_9_of_the_owner_no_process_is_left_and_the_data_is_there_at_the_next_start(
    folder: Path, run: Callable[[Path], _Owner]
) -> None:
    owner = run(folder)
    database_url, broker_url = owner.urls()
    assert len(owner.servers) == 2
    assert len(owner.everything) > 5
    with psycopg.connect(database_url, autocommit=True) as connection, redis.Redis.from_url(broker_url) as client:
        connection.execute("CREATE TABLE kept AS SELECT generate_series(1, 1000) AS number")
        client.set("key", "value")
        client.execute_command("WAITAOF", 1, 0, 5000)
        owner.process.kill()
        _until(lambda: _all_gone(owner.everything))

    successor = run(folder)
    assert successor.urls() == (database_url, broker_url)
    with psycopg.connect(database_url) as connection, redis.Redis.from_url(broker_url) as client:
        assert connection.execute("SELECT count(*) FROM kept").fetchone() == (1000,)
        assert client.get("key") == b"value"


def test_after_kill_9_of_the_owner_the_next_start_need_not_wait(folder: Path, run: Callable[[Path], _Owner]) -> None:
    urls = set()
    for _ in range(3):
        owner = run(folder)
        urls.add(owner.urls())
        owner.process.kill()
    assert len(urls) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_polite_end_leaves_no_process_and_is_no_failure(
    folder: Path, run: Callable[[Path], _Owner], number: signal.Signals
) -> None:
    owner = run(folder)
    owner.urls()
    owner.process.send_signal(number)
    out, err = owner.process.communicate(timeout=_DEADLINE_SECONDS)
    assert (owner.process.returncode, out, err) == (0, "", "")
    assert _all_gone(owner.everything)
    log = (folder / "postgres" / "server.log").read_text()
    assert log.rstrip().endswith("database system is shut down")


def test_a_second_run_in_the_same_folder_is_refused_and_disturbs_nothing(
    folder: Path, run: Callable[[Path], _Owner]
) -> None:
    owner = run(folder)
    database_url, _ = owner.urls()
    second = run(folder)
    out, err = second.process.communicate(timeout=_DEADLINE_SECONDS)
    assert second.process.returncode == 1
    assert out == ""
    assert f"in use by process {owner.process.pid}" in err
    with psycopg.connect(database_url) as connection:
        connection.execute("SELECT 1")


@pytest.mark.parametrize("which", [0, 1])
def test_when_a_server_ends_by_itself_the_run_ends_with_the_other_one(
    folder: Path, run: Callable[[Path], _Owner], which: int
) -> None:
    owner = run(folder)
    owner.urls()
    os.kill(owner.servers[which], signal.SIGKILL)
    _, err = owner.process.communicate(timeout=_DEADLINE_SECONDS)
    assert owner.process.returncode == 1
    assert "ended by itself" in err
    _until(lambda: _all_gone(owner.everything))


def test_kill_9_in_the_middle_of_the_first_start_leaves_nothing_half_made(
    tmp_path: Path, run: Callable[[Path], _Owner]
) -> None:
    owner = run(tmp_path)
    _until((tmp_path / "postgres" / "data.new" / "base").exists)
    assert _started_below(tmp_path)
    owner.process.kill()
    owner.process.wait()
    _until(lambda: not _started_below(tmp_path))
    assert not (tmp_path / "postgres" / "data").exists()

    database_url, _ = run(tmp_path).urls()
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT current_database()").fetchone() == ("outbox",)


def test_ctrl_c_in_the_middle_of_the_first_start_leaves_no_process(
    tmp_path: Path, run: Callable[[Path], _Owner]
) -> None:
    owner = run(tmp_path)
    _until((tmp_path / "postgres" / "data.new").exists)
    owner.process.send_signal(signal.SIGINT)
    assert owner.process.wait(_DEADLINE_SECONDS) == 0
    _until(lambda: not _started_below(tmp_path))
