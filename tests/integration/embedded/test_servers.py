"""The two servers, really started: what they promise while all goes well, and what they refuse."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from outbox_mail.embedded import PostgresServer, RedisServer, ports, server
from outbox_mail.embedded.binaries import find_postgres
from outbox_mail.embedded.process import release, spawn
from outbox_mail.errors import EmbeddedError

Server = PostgresServer | RedisServer
_FAST = {"fsync": "off"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a cluster for all tests here, which may stop, kill and start it, but must leave it sound."""
    folder = tmp_path_factory.mktemp("state") / "postgres"
    with PostgresServer(folder, settings=_FAST):
        pass
    return folder


@pytest.fixture
def postgres(cluster: Path) -> Iterator[PostgresServer]:
    with PostgresServer(cluster, settings=_FAST) as running:
        yield running


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path / "redis") as running:
        yield running


@pytest.fixture(params=["postgres", "redis"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Server]:
    """Builds the one or the other server, in a folder that is the same at each call and has no port yet."""
    if request.param == "redis":
        return lambda **options: RedisServer(tmp_path / "redis", **options)
    folder: Path = request.getfixturevalue("cluster")
    (folder / "port").unlink(missing_ok=True)
    return lambda **options: PostgresServer(folder, **{"settings": _FAST, **options})


def _ask(url: str, query: str) -> object:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]


def _do(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


def _until(condition: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "not within the deadline"
        time.sleep(0.02)


def _cwd_is(pid: str, folder: Path) -> bool:
    try:
        return Path(f"/proc/{pid}/cwd").samefile(folder)
    except OSError:
        return False


def _processes_in(folder: Path) -> list[str]:
    """PostgreSQL's processes all work in the data folder."""
    return [entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit() and _cwd_is(entry.name, folder)]


def test_a_new_postgres_is_utf8_and_utc_whatever_the_callers_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "LANG": "tr_TR.ISO-8859-9",
        "LC_ALL": "tr_TR.ISO-8859-9",
        "TZ": "Asia/Tokyo",
        "PGPORT": "1",
        "PGDATA": "/nowhere",
        "PYTHONHOME": "/nowhere",
    }.items():
        monkeypatch.setenv(name, value)
    with PostgresServer(tmp_path / "new folder's name", settings=_FAST) as running:
        assert _ask(running.url, "SHOW server_encoding") == "UTF8"
        assert _ask(running.url, "SELECT current_setting('TimeZone') || current_setting('log_timezone')") == "UTCUTC"
        assert _ask(running.url, "SELECT lower('IÇ') || upper('iğü') || ('Z' < 'a')") == "içIĞÜtrue"
        assert _ask(running.url, "SELECT current_database() || current_user") == "outboxoutbox"


def test_postgres_wants_its_password(postgres: PostgresServer) -> None:
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(postgres.url.replace("outbox:", "outbox:0"))
    assert str(_ask(postgres.url, "SELECT rolpassword FROM pg_authid WHERE rolname = 'outbox'")).startswith("SCRAM-")
    assert _ask(postgres.url, "SELECT count(*) FROM pg_hba_file_rules WHERE auth_method <> 'scram-sha-256'") == 0


def test_redis_wants_its_password(redis_server: RedisServer) -> None:
    with (
        redis.Redis(port=redis_server.port, password="wrong", retry=Retry(NoBackoff(), 0)) as client,
        pytest.raises(redis.exceptions.AuthenticationError),
    ):
        client.ping()
    with redis.Redis.from_url(redis_server.url) as client:
        assert client.ping()


def test_a_server_listens_on_127_0_0_1_alone(either: Callable[..., Server]) -> None:
    with either() as running:
        socket.create_connection(("127.0.0.1", running.port), 5).close()
        for elsewhere in ("127.0.0.2", "::1"):
            with pytest.raises(OSError, match=r"refused|Cannot assign|not supported"):
                socket.create_connection((elsewhere, running.port), 5)
        assert not list(running._folder.rglob(".s.PGSQL*"))


def test_secrets_stand_in_files_of_their_owner_and_on_no_command_line(either: Callable[..., Server]) -> None:
    with either() as running:
        folder = running._folder
        password = (folder / "password").read_text()
        assert len(password) == 32
        assert password in running.url
        assert password not in Path(f"/proc/{running.pid}/cmdline").read_text("utf-8", "replace")
        for name in ("password", "redis.conf", "server.log"):
            if (folder / name).exists():
                assert (folder / name).stat().st_mode & 0o077 == 0, name
        assert folder.stat().st_mode & 0o077 == 0 or (folder / "data").stat().st_mode & 0o077 == 0


def test_a_server_has_a_session_of_its_own_so_that_ctrl_c_passes_it_by(either: Callable[..., Server]) -> None:
    with either() as running:
        assert os.getsid(running.pid) == running.pid


def test_data_password_and_port_stay_between_runs(cluster: Path) -> None:
    with PostgresServer(cluster, settings=_FAST) as first:
        _do(first.url, "CREATE TABLE letters AS SELECT 'ğ' AS letter")
    with PostgresServer(cluster, settings=_FAST) as second:
        assert second.url == first.url
        assert _ask(second.url, "SELECT letter FROM letters") == "ğ"


@pytest.mark.parametrize("persistent", [False, True])
def test_redis_keeps_its_contents_only_where_asked(tmp_path: Path, persistent: bool) -> None:
    running = RedisServer(tmp_path, persistent=persistent)
    with running, redis.Redis.from_url(running.url) as client:
        client.set("key", "value")
        url = running.url
        running.restart()
        assert running.url == url
        assert client.get("key") == (b"value" if persistent else None)


def test_a_killed_postgres_leaves_no_child_and_recovers_what_was_committed(postgres: PostgresServer) -> None:
    _do(postgres.url, "CREATE TABLE kept (number int)")
    _do(postgres.url, "INSERT INTO kept SELECT generate_series(1, 1000)")
    url = postgres.url
    with psycopg.connect(url) as busy:
        busy.execute("INSERT INTO kept VALUES (0)")
        waiting = threading.Thread(target=_swallow, args=(busy, "SELECT pg_sleep(60)"))
        waiting.start()
        _until(lambda: _ask(url, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(60)'") != 0)
        postgres.kill()
        assert not postgres.running
        assert _processes_in(postgres._data) == []
        waiting.join(10)
        assert not waiting.is_alive()
        postgres.start()
    assert postgres.url == url
    assert _ask(url, "SELECT count(*) FROM kept") == 1000


def _swallow(connection: psycopg.Connection[tuple[object, ...]], statement: str) -> None:
    try:
        connection.execute(statement.encode())
    except psycopg.Error:
        return


def test_a_server_that_was_killed_from_outside_is_seen_and_can_be_started_again(either: Callable[..., Server]) -> None:
    with either() as running:
        pid = running.pid
        os.kill(pid, signal.SIGKILL)
        _until(lambda: not running.running)
        with pytest.raises(EmbeddedError, match="is not running"):
            _ = running.pid
        running.start()
        assert running.pid != pid


def test_a_frozen_server_is_stopped_all_the_same(
    either: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_STOP_SECONDS", 0.2)
    running = either().start()
    process = running._process
    assert process is not None
    os.kill(running.pid, signal.SIGSTOP)
    running.stop()
    assert process.returncode == -signal.SIGKILL


def test_a_stale_pid_that_means_another_living_process_by_now_does_not_stop_the_start(cluster: Path) -> None:
    PostgresServer(cluster, settings=_FAST).start().kill()
    left_behind = cluster / "data" / "postmaster.pid"
    lines = left_behind.read_text().split("\n")
    with subprocess.Popen(["sleep", "60"]) as stranger:
        left_behind.write_text("\n".join([str(stranger.pid), *lines[1:]]))
        with PostgresServer(cluster, settings=_FAST) as running:
            assert _ask(running.url, "SELECT 1") == 1
        stranger.kill()


@pytest.mark.parametrize("content", ["", "\n", "not a number\n", "\0\0\0\0", "ü\n", "-1\n", "99999999999999999999\n"])
def test_a_pid_file_that_a_crash_has_spoilt_does_not_stop_the_start(cluster: Path, content: str) -> None:
    (cluster / "data" / "postmaster.pid").write_text(content)
    with PostgresServer(cluster, settings=_FAST) as running:
        assert _ask(running.url, "SELECT 1") == 1


def test_a_postgres_that_somebody_else_started_on_the_data_is_left_alone(cluster: Path) -> None:
    data, log_path = cluster / "data", cluster / "by_hand.log"
    with log_path.open("wb") as log:
        by_hand = spawn(
            [find_postgres().postgres, "-D", data, "-c", f"port={ports.pick()}", "-c", "unix_socket_directories="],
            log=log,
            death_signal=signal.SIGQUIT,
            data=data,
        )
    try:
        _until(lambda: b"ready to accept connections" in log_path.read_bytes())
        with pytest.raises(EmbeddedError, match=rf"process {by_hand.pid}, not started by this program"):
            PostgresServer(cluster, settings=_FAST).start()
        assert by_hand.poll() is None
    finally:
        by_hand.send_signal(signal.SIGQUIT)
        by_hand.wait(20)


def test_a_second_start_in_the_same_folder_is_refused_and_names_the_process(either: Callable[..., Server]) -> None:
    with either() as running:
        with pytest.raises(EmbeddedError, match=rf"in use by process {os.getpid()}\b"):
            either().start()
        with pytest.raises(EmbeddedError, match="started already"):
            running.start()
        assert running.running
    with either():
        pass


def test_a_server_whose_owner_is_gone_is_waited_for_and_then_named(
    either: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    orphan = either().start()
    pid, orphan_process = orphan.pid, orphan._process
    assert orphan_process is not None
    assert orphan._owner_lock is not None
    release(orphan._owner_lock)
    orphan._owner_lock = None
    with monkeypatch.context() as patch:
        patch.setattr(server, "_PREDECESSOR_SECONDS", 0.1)
        with pytest.raises(EmbeddedError, match=rf"still runs in .*its process was {pid}\. End it"):
            either().start()
    assert orphan_process.poll() is None
    ending = threading.Timer(0.3, os.kill, (pid, signal.SIGTERM if isinstance(orphan, RedisServer) else signal.SIGQUIT))
    ending.start()
    with either() as successor:
        assert orphan_process.poll() is not None
        assert successor.pid != pid
    ending.join()


def test_a_given_port_that_is_taken_is_an_error_that_names_it(
    either: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_PORT_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(EmbeddedError, match=rf"port {port} of 127\.0\.0\.1 is in use"):
            either(port=port).start()
    with either(port=port) as running:
        assert running.port == port


def test_when_another_program_is_quicker_at_the_port_the_next_is_tried(
    either: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    free = ports.pick()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        offers = [taken.getsockname()[1], free]
        monkeypatch.setattr(ports, "pick", lambda: offers.pop(0))
        with either() as running:
            assert running.port == free


def test_a_kept_port_that_is_taken_meanwhile_is_replaced(either: Callable[..., Server]) -> None:
    with either() as running:
        port = running.port
    with socket.create_server(("127.0.0.1", port)), either() as moved:
        assert moved.port != port


@pytest.mark.parametrize("kept", ["", "no port", "99999", "-1", "0", "²"])
def test_a_spoilt_port_file_is_passed_over(tmp_path: Path, kept: str) -> None:
    (tmp_path / "port").write_text(kept)
    with RedisServer(tmp_path) as running:
        assert 0 < running.port < 65536


def test_settings_reach_the_servers(cluster: Path, tmp_path: Path) -> None:
    with PostgresServer(cluster, settings={"application_name": "a b'c", "fsync": "off"}) as postgres:
        with psycopg.connect(postgres.url, autocommit=True) as connection:
            connection.execute("RESET application_name")
        assert _ask(postgres.url, "SELECT boot_val || setting FROM pg_settings WHERE name = 'fsync'") == "onoff"
        assert _ask(postgres.url, "SELECT reset_val FROM pg_settings WHERE name = 'application_name'") == "a b'c"
    with (
        RedisServer(tmp_path / "r", settings={"maxmemory": "5mb"}) as running,
        redis.Redis.from_url(running.url) as client,
    ):
        assert client.config_get("maxmemory") == {"maxmemory": "5242880"}


@pytest.mark.parametrize("port", [-1, 0, 65536, 10**9])
def test_a_port_that_can_not_be_is_refused(tmp_path: Path, port: int) -> None:
    with pytest.raises(EmbeddedError, match=r"port: must be between 1 and 65535"):
        RedisServer(tmp_path, port=port)


@pytest.mark.parametrize("value", ["yes\nrequirepass x", "yes\r", "a\0b"])
def test_a_setting_can_not_smuggle_in_another_line(tmp_path: Path, value: str) -> None:
    with pytest.raises(EmbeddedError, match=r"settings\['appendonly'\] holds a line break or NUL"):
        RedisServer(tmp_path, settings={"appendonly": value})


def test_a_first_start_that_failed_says_why_and_is_begun_anew(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedError, match="work_mem"):
        PostgresServer(tmp_path, settings={"work_mem": "much", **_FAST}).start()
    with PostgresServer(tmp_path, settings=_FAST) as running:
        assert _ask(running.url, "SELECT 1") == 1


def test_a_start_that_fails_shows_the_servers_own_words(either: Callable[..., Server]) -> None:
    with pytest.raises(EmbeddedError, match=r"ended at once(.|\n)*no_such_setting"):
        either(settings={"no_such_setting": "1"}).start()
    with either():
        pass


def test_data_without_its_password_file_is_an_error_that_says_what_to_do(either: Callable[..., Server]) -> None:
    with either() as running:
        folder = running._folder
    (folder / "password").rename(folder / "elsewhere")
    with pytest.raises(EmbeddedError, match=r"password file is missing(.|\n)*delete the folder"):
        either().start()
    (folder / "elsewhere").rename(folder / "password")
    with either():
        pass


def test_a_folder_that_is_none_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(EmbeddedError, match=rf"the folder {folder} can't be used"):
            PostgresServer(folder).start()


@pytest.mark.parametrize(("version", "said"), [("12", "made by version 12"), ("", "made by version "), (None, "read")])
def test_data_of_another_version_or_of_no_version_is_an_error(tmp_path: Path, version: str | None, said: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "password").write_text("secret")
    if version is not None:
        (tmp_path / "data" / "PG_VERSION").write_text(version)
    with pytest.raises(EmbeddedError, match=rf"{said}(.|\n)*delete the folder"):
        PostgresServer(tmp_path).start()


def test_a_start_outside_the_main_thread_is_refused(either: Callable[..., Server]) -> None:
    caught: list[str] = []

    def start() -> None:
        try:
            either().start()
        except EmbeddedError as error:
            caught.append(str(error))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join(20)
    assert "main thread" in caught[0]
    with either():
        pass


def test_before_the_first_start_there_is_no_url_port_or_pid(either: Callable[..., Server]) -> None:
    idle = either()
    for name in ("url", "port", "pid"):
        with pytest.raises(EmbeddedError, match="Start it first"):
            getattr(idle, name)
    idle.stop()
    idle.kill()


def test_a_database_is_copied_from_a_template(postgres: PostgresServer) -> None:
    postgres.create_database('odd "name"')
    _do(postgres.url_for('odd "name"'), "CREATE TABLE copied AS SELECT 7 AS number")
    postgres.create_database("copy", template='odd "name"')
    assert _ask(postgres.url_for("copy"), "SELECT number FROM copied") == 7


def test_a_database_whose_name_is_taken_is_an_error_of_the_server(postgres: PostgresServer) -> None:
    with pytest.raises(psycopg.errors.DuplicateDatabase):
        postgres.create_database("outbox")


def test_the_servers_load_nothing_but_the_standard_library_and_the_errors() -> None:
    # The package's own __init__ is the producer's and loads SQLAlchemy; here it is left out.
    code = (
        "import sys, types, importlib.machinery\n"
        "package = types.ModuleType('outbox_mail'); package.__path__ = [sys.argv[1]]\n"
        "sys.modules['outbox_mail'] = package\n"
        "import outbox_mail.embedded, outbox_mail.embedded.__main__\n"
        "print(sorted({n.partition('.')[0] for n in sys.modules} - sys.stdlib_module_names))\n"
        "print(sorted(n for n in sys.modules if n.startswith('outbox_mail.') and 'embedded' not in n))\n"
    )
    package = Path(server.__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, package], capture_output=True, text=True, check=True, timeout=30
    )
    first, second = done.stdout.splitlines()
    assert set(eval(first)) <= {"__main__", "outbox_mail"}
    assert eval(second) == ["outbox_mail.errors"]
