"""A private PostgreSQL server."""

from __future__ import annotations

import shutil
import signal
import socket
import struct
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, ClassVar
from urllib.parse import quote

from outbox_mail.embedded.binaries import POSTGRES_OVERRIDE, PostgresBinaries, find_postgres
from outbox_mail.embedded.ports import LOOPBACK
from outbox_mail.embedded.process import kill_with_children, spawn
from outbox_mail.embedded.server import Server, log_since
from outbox_mail.errors import EmbeddedError

_USER = "outbox"
_DATABASE = "outbox"
_INITDB_SECONDS = 120.0
_ANSWER_SECONDS = 1.0
_PROTOCOL_3 = 196_608
# Lines of postmaster.pid, as pg_ctl reads them (PostgreSQL: src/include/utils/pidfile.h).
_PID_LINE = 0
_STATUS_LINE = 7
# PID_MAX_LIMIT of Linux.
_LARGEST_PID = 2**22
_FIRST_WITH_BUILTIN_LOCALES = 17


class PostgresServer(Server):
    """PostgreSQL on 127.0.0.1, no Unix socket, with the superuser and the database ``outbox``.

    UTF-8, the locale C.UTF-8 and the time zone UTC, whatever the caller's are. ``settings`` are server parameters
    (``{"fsync": "off"}``). When its owner is killed it shuts down at once and recovers at the next start.
    """

    _name: ClassVar[str] = "PostgreSQL"
    # Fast shutdown for a stop; immediate shutdown when the owner is gone, since nobody is left who would wait for it.
    _stop_signal: ClassVar[signal.Signals] = signal.SIGINT
    _death_signal: ClassVar[signal.Signals] = signal.SIGQUIT

    def __init__(self, folder: Path, *, port: int | None = None, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(folder, port=port, settings=settings)
        self._binaries: PostgresBinaries | None = None

    @property
    def url(self) -> str:
        """``postgresql://outbox:PASSWORD@127.0.0.1:PORT/outbox``. Raises EmbeddedError before the first start."""
        return self.url_for(_DATABASE)

    def url_for(self, database: str) -> str:
        """The URL of another database of this server, whether it exists or not."""
        return f"postgresql://{_USER}:{self._secret}@{LOOPBACK}:{self.port}/{quote(database, safe='')}"

    def create_database(self, name: str, template: str | None = None) -> None:
        """Create a database, as a copy of ``template`` where one is given; nobody may be connected to that one.

        Needs psycopg (extra ``service``), else EmbeddedError; raises psycopg.Error when the server refuses.
        """
        try:
            import psycopg  # noqa: PLC0415 - the servers themselves do without it
            from psycopg import sql  # noqa: PLC0415
        except ImportError as error:
            raise EmbeddedError(
                "PostgreSQL: creating a database needs psycopg. Install it: pip install 'outbox-mail[service]'."
            ) from error
        statement = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
        if template is not None:
            statement += sql.SQL(" TEMPLATE {}").format(sql.Identifier(template))
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement)

    def _prepare(self) -> None:
        self._binaries = binaries = find_postgres()
        if self._data.exists():
            self._check_version(binaries)
            return
        # Made beside its place and then renamed: a first start that was cut off leaves nothing half-made there.
        unfinished = self._folder / "data.new"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=0o700)
        locale = ["--locale=C.UTF-8"]
        if binaries.major >= _FIRST_WITH_BUILTIN_LOCALES:
            locale = ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        arguments = [f"--username={_USER}", f"--pwfile={self._folder / 'password'}", "--auth=scram-sha-256"]
        if self._settings.get("fsync") == "off":
            arguments.append("--no-sync")
        self._run_once([binaries.initdb, f"--pgdata={unfinished}", "--encoding=UTF8", *locale, *arguments], unfinished)
        self._run_once(
            [binaries.postgres, "--single", "-D", unfinished, *self._parameters(), "postgres"],
            unfinished,
            stdin=f"CREATE DATABASE {_DATABASE}\n",
        )
        unfinished.rename(self._data)

    def _check_version(self, binaries: PostgresBinaries) -> None:
        try:
            made_by = (self._data / "PG_VERSION").read_text("ascii", "replace").strip()
        except OSError as error:
            raise EmbeddedError(
                f"PostgreSQL: the data in {self._data} can't be read ({error.strerror or error}). "
                "Start as the user who made it, or delete the folder to start afresh."
            ) from error
        if made_by != str(binaries.major):
            raise EmbeddedError(
                f"PostgreSQL: the data in {self._data} was made by version {made_by}, and {binaries.postgres} is "
                f"version {binaries.major}. Set {POSTGRES_OVERRIDE} to the programs of version {made_by}, "
                "or delete the folder to start afresh."
            )

    def _run_once(self, command: Sequence[str | Path], data: Path, *, stdin: str = "") -> None:
        path = self._folder / "initdb.log"
        with self._open_log(path) as log:
            begun = log.tell()
            process = spawn(
                command, log=log, death_signal=signal.SIGKILL, data=data, lock=self._server_lock, stdin=subprocess.PIPE
            )
        try:
            process.communicate(stdin.encode(), _INITDB_SECONDS)
        except BaseException:
            kill_with_children(process)
            raise
        if process.returncode != 0:
            raise EmbeddedError(
                f"PostgreSQL: {Path(command[0]).name} failed with code {process.returncode}. "
                f"Its log: {log_since(path, begun)}"
            )

    def _parameters(self) -> list[str]:
        parameters = {
            "listen_addresses": LOOPBACK,
            "unix_socket_directories": "",
            "timezone": "UTC",
            "log_timezone": "UTC",
            **self._settings,
        }
        return [argument for name, value in parameters.items() for argument in ("-c", f"{name}={value}")]

    def _spawn(self, port: int, log: BinaryIO) -> subprocess.Popen[bytes]:
        binaries = self._binaries or find_postgres()
        command: list[str | Path] = [binaries.postgres, "-D", self._data, *self._parameters(), "-c", f"port={port}"]
        return spawn(
            command,
            log=log,
            death_signal=self._death_signal,
            data=self._data,
            lock=self._server_lock,
            environ=self._stale_pid(),
        )

    def _stale_pid(self) -> dict[str, str]:
        """What lets PostgreSQL pass over a postmaster.pid that was left behind.

        It takes any living process of that number, started long after a crash, for a running server. Our lock tells
        that no server of ours is left, so a process that does not work in the data folder can't be one.
        PG_GRANDPARENT_PID names a process that is no server; PostgreSQL's own check of shared memory stays in force.
        """
        path = self._data / "postmaster.pid"
        try:
            number = path.read_text("ascii", "replace").split("\n")[_PID_LINE].strip()
        except FileNotFoundError:
            return {}
        if not number.isdigit() or int(number) > _LARGEST_PID:
            # Cut off by a crash of the machine. PostgreSQL would want a person to remove it.
            path.unlink()
            return {}
        if _works_in(int(number), self._data):
            raise EmbeddedError(
                f"PostgreSQL: process {number}, not started by this program, serves {self._data}. Stop that one first."
            )
        return {"PG_GRANDPARENT_PID": number}

    def _is_ready(self, pid: int, port: int) -> bool:
        """As pg_ctl and pg_isready judge it together: the pid file says so for this process, and a login is begun."""
        try:
            lines = (self._data / "postmaster.pid").read_text("ascii", "replace").split("\n")
        except OSError:
            return False
        if len(lines) <= _STATUS_LINE or lines[_PID_LINE].strip() != str(pid) or lines[_STATUS_LINE].strip() != "ready":
            return False
        parameters = f"user\0{_USER}\0database\0{_DATABASE}\0\0".encode()
        try:
            with socket.create_connection((LOOPBACK, port), _ANSWER_SECONDS) as connection:
                connection.sendall(struct.pack("!II", 8 + len(parameters), _PROTOCOL_3) + parameters)
                # R asks for the password; E refuses, for example since the database system is starting up.
                return connection.recv(4096)[:1] == b"R"
        except OSError:
            return False


def _works_in(pid: int, folder: Path) -> bool:
    """Whether the process's working directory is ``folder``, as a postmaster's is; when in doubt, by its name."""
    process = Path("/proc") / str(pid)
    try:
        return (process / "cwd").samefile(folder)
    except FileNotFoundError:
        return False
    except PermissionError:
        try:
            return b"postgres" in (process / "cmdline").read_bytes() and process.stat().st_uid == folder.stat().st_uid
        except OSError:
            return False
