"""Everything that the demo runs: two embedded servers, the service's four processes, and the SMTP server."""

from __future__ import annotations

import os
import secrets
import shlex
import sys
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import psycopg

from examples.demo.mailserver import MailServer, listens
from examples.demo.programs import Program, Supervisor
from outbox_mail.embedded import PostgresServer, RedisServer, ports
from outbox_mail.embedded.process import lock_file, release
from outbox_mail.operations.migrate import migrate
from outbox_mail.settings import ENV_PREFIX

CHECKOUT: Final = Path(__file__).parents[2]
_READY_SECONDS: Final = 60
_STOP_SECONDS: Final = 8
_WORKER_CONCURRENCY: Final = 8
_BROKER: Final = "broker"

SHORT_WAITS: Final = {
    "RETRY_SCHEDULE_SECONDS": "1,2,4",
    "LEASE_SECONDS": "6",
    "SEND_DEADLINE_SECONDS": "4",
    "REAP_INTERVAL_SECONDS": "2",
    "REPUBLISH_SECONDS": "5",
    "RELAY_BACKOFF_MAX_SECONDS": "2",
}
"""Settings whose defaults are minutes, so that a person who watches need not wait."""


class AlreadyRunningError(Exception):
    """Another demo uses the folder."""


class Stage:
    """A context: all is up and migrated inside, and nothing is left afterwards, however this process ends.

    Use it from the main thread, except ``mail_server``. Data and logs stay in ``folder`` for the next time.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = folder / "files"
        self.mail_server = MailServer(folder / "mail")
        self._postgres = PostgresServer(folder / "postgres")
        # A demo's broker keeps nothing: losing its contents is what it is to survive.
        self._broker = RedisServer(folder / "redis")
        self._broker_restarts = 0
        self._workers_killed = 0
        self._supervisor = Supervisor(folder / "logs")
        self._flower_port = ports.pick()
        self._flower_password = secrets.token_urlsafe(9)
        self._exit = ExitStack()
        self.connection: psycopg.Connection[Any]

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._only_one(stack)
            for folder in (self.files, self.folder / "logs"):
                folder.mkdir(parents=True, exist_ok=True)
            self.mail_server.prepare()
            stack.enter_context(self._postgres)
            migrate(self.database_url)
            self.connection = stack.enter_context(psycopg.connect(self.database_url, autocommit=True))
            stack.callback(self._broker.stop)
            self._broker.start()
            self._write_environment()
            stack.callback(self._supervisor.stop, _STOP_SECONDS)
            for program in self._programs():
                self._supervisor.start(program)
            self._supervisor.wait_ready(_READY_SECONDS)
            self._exit = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._exit.__exit__(kind, error, traceback)

    @property
    def database_url(self) -> str:
        """The shop's database, in which the outbox's tables are, too."""
        return self._postgres.url

    @property
    def sqlalchemy_url(self) -> str:
        """The same for SQLAlchemy."""
        return self.database_url.replace("postgresql://", "postgresql+psycopg://", 1)

    @property
    def addresses(self) -> dict[str, str]:
        """What a person may want to look at."""
        return {
            "Flower": f"http://demo:{self._flower_password}@127.0.0.1:{self._flower_port}/",
            "Shell": f"set -a; . {shlex.quote(_short(self.folder / 'environment'))}; .venv/bin/outbox-mail status",
        }

    @property
    def copies_allowed(self) -> int:
        """How many mails the killed workers can have had in hand."""
        return self._workers_killed * _WORKER_CONCURRENCY

    def tend(self) -> list[str]:
        """Start again what died. Returns what happened, for people."""
        said = self._supervisor.tend()
        if not self._broker.running:
            self._broker.start()
            self._broker_restarts += 1
            said.append("broker ended; started again, empty")
        return said

    def kill(self, name: str) -> None:
        """kill -9 of the relay, the worker or the broker."""
        if name == _BROKER:
            self._broker.kill()
            return
        self._workers_killed += name == "worker"
        self._supervisor.kill(name)

    def processes(self) -> dict[str, int | None]:
        """The pid of each process, None for one that is down."""
        return {
            "postgres": self._postgres.pid if self._postgres.running else None,
            _BROKER: self._broker.pid if self._broker.running else None,
            **self._supervisor.alive(),
        }

    def restarts(self) -> dict[str, int]:
        """How often each was started again."""
        return {_BROKER: self._broker_restarts, **self._supervisor.restarts()}

    def _only_one(self, stack: ExitStack) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = lock_file(self.folder / "demo.lock", patience_seconds=0)
        if lock is None:
            raise AlreadyRunningError(
                f"Another demo is running in {self.folder}. End it first, or give this one a folder: --folder /tmp/demo"
            )
        stack.callback(release, lock)

    def _programs(self) -> list[Program]:
        python = sys.executable
        environment = self._environment() | {
            "HOME": os.environ.get("HOME", str(self.folder)),
            "LC_ALL": "C.UTF-8",
            "PYTHONPATH": str(CHECKOUT),
            "PYTHONUNBUFFERED": "1",
        }
        celery = [python, "-m", "celery", "-A", "tasks"]
        flower = {
            "FLOWER_ADDRESS": "127.0.0.1",
            "FLOWER_PORT": str(self._flower_port),
            "FLOWER_BASIC_AUTH": f"demo:{self._flower_password}",
        }
        return [
            Program("smtp", self.mail_server.command, environment, ready=lambda _: self.mail_server.listens()),
            Program("relay", [python, "-m", "relay"], environment, ready=lambda pid: self._reports("relay", pid)),
            Program(
                "worker",
                [*celery, "worker", "--loglevel=INFO", "-E", f"--hostname=demo-{os.getpid()}@%h"],
                environment,
                ready=lambda pid: self._reports("worker", pid),
            ),
            Program(
                "beat", [*celery, "beat", "--loglevel=INFO", f"--schedule={self.folder / 'beat-schedule'}"], environment
            ),
            Program("flower", [*celery, "flower"], environment | flower, ready=lambda _: listens(self._flower_port)),
        ]

    def _environment(self) -> dict[str, str]:
        return service_environment(self.database_url, self._broker.url, self.mail_server.url, self.files)

    def _write_environment(self) -> None:
        """For people: ``set -a; . environment`` lets the command line ask this system. Holds passwords."""
        path = self.folder / "environment"
        path.touch(mode=0o600)
        path.write_text("".join(f"{name}={shlex.quote(value)}\n" for name, value in self._environment().items()))

    def _reports(self, kind: str, pid: int) -> bool:
        query = "SELECT 1 FROM outbox_processes WHERE kind = %s AND pid = %s"
        return self.connection.execute(query, [kind, pid]).fetchone() is not None


def service_environment(database_url: str, broker_url: str, provider_url: str, files: Path) -> dict[str, str]:
    """The service's settings, as its processes read them."""
    settings = {
        "DATABASE_URL": database_url,
        "BROKER_URL": broker_url,
        "PROVIDER_URL": provider_url,
        "TEMPLATES": str(CHECKOUT / "examples/shop/templates"),
        "DEFAULT_SENDER": "Fincan & Co. <hello@shop.example>",
        "MESSAGE_ID_DOMAIN": "shop.example",
        "ATTACHMENT_STORES": f"file://{files}",
        "WORKER_CONCURRENCY": str(_WORKER_CONCURRENCY),
        "LOG_FORMAT": "console",
        **SHORT_WAITS,
    }
    return {f"{ENV_PREFIX}{name}": value for name, value in settings.items()}


def _short(path: Path) -> str:
    """Relative where the person stands, if it is below."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
