"""What the two servers have in common: a folder, a password, a port, and a life that ends with its owner's."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, ClassVar, Self

from outbox_mail.embedded import ports
from outbox_mail.embedded.process import kill_with_children, lock_file, release
from outbox_mail.errors import EmbeddedError

_POLL_SECONDS = 0.02
_START_SECONDS = 60.0
_STOP_SECONDS = 20.0
_PREDECESSOR_SECONDS = 15.0
_PORT_SECONDS = 5.0
_PORTS_TRIED = 10
_LOG_KEPT_BYTES = 5_000_000
_LOG_SHOWN_BYTES = 2_000


class Server(ABC):
    """One server on 127.0.0.1 with its data in ``folder``, which holds them between runs.

    Not safe to use from several threads. The port is kept while the object lives and, if it is still free, from one
    run to the next; given by the caller, it is never changed.
    """

    _name: ClassVar[str]
    _stop_signal: ClassVar[signal.Signals]
    _death_signal: ClassVar[signal.Signals]

    def __init__(self, folder: Path, *, port: int | None = None, settings: Mapping[str, str] | None = None) -> None:
        self._folder = Path(folder).absolute()
        self._port = port
        if port is not None and not ports.is_possible(port):
            raise EmbeddedError(
                f"{self._name}: port: must be between 1 and 65535, not {port}. Leave it out for a free one."
            )
        self._settings = dict(settings or {})
        for name, value in self._settings.items():
            if any(character in name + value for character in "\r\n\0"):
                raise EmbeddedError(f"{self._name}: settings[{name!r}] holds a line break or NUL. Remove it.")
        self._process: subprocess.Popen[bytes] | None = None
        self._owner_lock: int | None = None
        self._server_lock: int | None = None
        self._password: str | None = None

    def start(self) -> Self:
        """Start, and return when the server answers to the protocol: recovery is over and queries are taken.

        Waits a while for a server that an owner who was killed left behind in the folder. Only from the main thread.
        Raises EmbeddedError when it runs already, when the folder is in use or not ours, when programs are missing,
        when a port that must not change is taken, or when the server ends or is not ready in time; its last log
        lines are in the message.
        """
        if self.running:
            raise EmbeddedError(f"{self._name} in {self._folder} was started already. Stop it first, or restart it.")
        self._let_go()
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._owner_lock = lock_file(self._folder / "owner.lock", patience_seconds=0)
        except OSError as error:
            raise EmbeddedError(
                f"{self._name}: the folder {self._folder} can't be used ({error.strerror or error}). "
                "Start as the user whose folder it is, or use another one."
            ) from error
        if self._owner_lock is None:
            raise EmbeddedError(
                f"{self._name}: {self._folder} is in use by process {self._read('owner.pid') or 'unknown'}. "
                "Stop that one first, or use another folder."
            )
        try:
            self._write("owner.pid", str(os.getpid()))
            self._server_lock = self._await_predecessor()
            try:
                self._password = self._keep_password()
                self._prepare()
                self._launch()
            finally:
                # Only the server and its children hold it from here on, so that it tells whether they are there.
                os.close(self._server_lock)
                self._server_lock = None
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self) -> None:
        """End the server in good order, or by SIGKILL when that takes too long. Does nothing if it does not run."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(self._stop_signal)
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                kill_with_children(self._process)
        self._let_go()

    def kill(self) -> None:
        """End the server and its children by SIGKILL, as a crash would. Does nothing if it does not run."""
        if self._process is not None:
            kill_with_children(self._process)
        self._let_go()

    def restart(self) -> None:
        """Stop and start, on the same port and data. Raises as ``start`` does."""
        self.stop()
        self.start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def running(self) -> bool:
        """Whether the server's process lives. False also when it ended by itself."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The server's process. Raises EmbeddedError when it does not run."""
        if self._process is None or self._process.poll() is not None:
            raise EmbeddedError(f"{self._name} in {self._folder} is not running. Start it first.")
        return self._process.pid

    @property
    def port(self) -> int:
        """The port on 127.0.0.1; stays known after a stop. Raises EmbeddedError before the first start."""
        if self._port is None:
            raise EmbeddedError(f"{self._name} in {self._folder} has no port yet. Start it first.")
        return self._port

    @property
    @abstractmethod
    def url(self) -> str:
        """Where clients connect, the password included. Raises EmbeddedError before the first start."""

    @property
    def _secret(self) -> str:
        if self._password is None:
            raise EmbeddedError(f"{self._name} in {self._folder} has no password yet. Start it first.")
        return self._password

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    @abstractmethod
    def _prepare(self) -> None:
        """Make what the server needs before its first start; the folder is ours alone meanwhile."""

    @abstractmethod
    def _spawn(self, port: int, log: BinaryIO) -> subprocess.Popen[bytes]:
        """Start the server's process, holding the server lock."""

    @abstractmethod
    def _is_ready(self, pid: int, port: int) -> bool:
        """Whether this very process takes queries. Must not be fooled by another server on the port."""

    def _launch(self) -> None:
        for port in self._possible_ports():
            if self._try_port(port):
                self._port = port
                self._write("port", str(port))
                return
        raise EmbeddedError(f"{self._name}: {_PORTS_TRIED} ports of {ports.LOOPBACK} were taken in a row. Give one.")

    def _possible_ports(self) -> Iterator[int]:
        if self._port is not None:
            deadline = time.monotonic() + _PORT_SECONDS
            while time.monotonic() < deadline:
                if ports.is_free(self._port):
                    yield self._port
                time.sleep(_POLL_SECONDS)
            raise EmbeddedError(
                f"{self._name}: port {self._port} of {ports.LOOPBACK} is in use by another program. "
                "End that one, or start on another port."
            )
        kept = self._read("port")
        if kept.isdigit() and ports.is_possible(int(kept)) and ports.is_free(int(kept)):
            yield int(kept)
        for _ in range(_PORTS_TRIED):
            yield ports.pick()

    def _try_port(self, port: int) -> bool:
        """False when another program was quicker at the port."""
        path = self._folder / "server.log"
        with self._open_log(path) as log:
            begun = log.tell()
            self._process = process = self._spawn(port, log)
        self._write("server.pid", str(process.pid))
        deadline = time.monotonic() + _START_SECONDS
        while process.poll() is None:
            if self._is_ready(process.pid, port):
                return True
            if time.monotonic() >= deadline:
                raise EmbeddedError(
                    f"{self._name} was not ready after {_START_SECONDS:.0f} s. Its log: {log_since(path, begun)}"
                )
            time.sleep(_POLL_SECONDS)
        said = log_since(path, begun)
        if "ddress already in use" in said:
            return False
        raise EmbeddedError(f"{self._name} ended at once, with code {process.returncode}. Its log: {said}")

    def _await_predecessor(self) -> int:
        """The lock that a server holds while it lives, taken; one whose owner was killed is just about to end."""
        lock = lock_file(self._folder / "server.lock", patience_seconds=_PREDECESSOR_SECONDS)
        if lock is None:
            raise EmbeddedError(
                f"{self._name}: an earlier server still runs in {self._folder}, although its owner is gone; "
                f"its process was {self._read('server.pid') or 'not recorded'}. End it, then start again."
            )
        return lock

    def _let_go(self) -> None:
        if self._process is not None:
            self._process = None
            # The children of a killed server take a moment to go, and no process is to be left behind.
            lock = lock_file(self._folder / "server.lock", patience_seconds=_PREDECESSOR_SECONDS)
            if lock is not None:
                os.close(lock)
        if self._owner_lock is not None:
            release(self._owner_lock)
            self._owner_lock = None

    def _keep_password(self) -> str:
        kept = self._read("password")
        if kept:
            return kept
        if self._data.exists():
            raise EmbeddedError(
                f"{self._name}: {self._folder} holds data, but its password file is missing or empty. "
                "Put the file back, or delete the folder to start afresh."
            )
        made = secrets.token_hex(16)
        self._write("password", made)
        return made

    def _open_log(self, path: Path) -> BinaryIO:
        """Open for appending; readable by its owner only, since servers log statements. Too long a log starts anew."""
        log = open(path, "ab", opener=_private)  # noqa: SIM115 - Path.open takes no opener; the caller closes
        if log.tell() > _LOG_KEPT_BYTES:
            log.truncate(0)
            log.seek(0)
        return log

    def _read(self, name: str) -> str:
        try:
            return (self._folder / name).read_text("ascii", "replace").strip()
        except FileNotFoundError:
            return ""

    def _write(self, name: str, content: str) -> None:
        """Write a small file whole or not at all, readable by its owner only."""
        temporary = self._folder / f".{name}.new"
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(content)
        temporary.replace(self._folder / name)


def log_since(path: Path, begun: int) -> str:
    """The last lines of a log, and of them only what was written from byte ``begun`` on."""
    with path.open("rb") as log:
        size = log.seek(0, os.SEEK_END)
        log.seek(max(begun, size - _LOG_SHOWN_BYTES))
        return log.read().decode("utf-8", "replace").strip() or "(empty)"


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
