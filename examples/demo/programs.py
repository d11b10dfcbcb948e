"""Child processes that are restarted when they die, and that never outlive this process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from outbox_mail.embedded.process import spawn

_RESTART_PAUSES_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)
_STEADY_SECONDS = 10.0


class NotReadyError(Exception):
    """A program ended at once, or did not do its work in time."""


@dataclass(frozen=True)
class Program:
    """What to run, and what is added to a bare environment.

    ``ready`` tells, cheaply, whether the process with the given pid does its work by now.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    ready: Callable[[int], bool] = lambda pid: True  # noqa: ARG005


@dataclass
class _Running:
    program: Program
    process: subprocess.Popen[bytes]
    started_at: float
    failures: int = 0
    restart_at: float | None = None
    restarts: int = 0


@dataclass
class Supervisor:
    """Starts programs with their output in ``logs``; use it from the main thread.

    Each is a session of its own, so that Ctrl-C in the terminal reaches this process only, which then stops them in
    order; and each dies with this process, kill -9 included.
    """

    logs: Path
    _running: dict[str, _Running] = field(default_factory=dict)

    def start(self, program: Program) -> None:
        """Start it, once; from then on ``tend`` restarts it."""
        self._running[program.name] = _Running(program, self._spawn(program), time.monotonic())

    def tend(self) -> list[str]:
        """Restart what died, after a pause that grows while it keeps dying. Returns what happened, for people."""
        said = []
        now = time.monotonic()
        for name, running in self._running.items():
            code = running.process.poll()
            if code is None:
                continue
            if running.restart_at is None:
                if now - running.started_at > _STEADY_SECONDS:
                    running.failures = 0
                pause = _RESTART_PAUSES_SECONDS[min(running.failures, len(_RESTART_PAUSES_SECONDS) - 1)]
                running.failures += 1
                running.restart_at = now + pause
                said.append(f"{name} ended ({_reason(code)}); starting it again")
            elif now >= running.restart_at:
                running.process = self._spawn(running.program)
                running.started_at, running.restart_at = now, None
                running.restarts += 1
        return said

    def wait_ready(self, deadline_seconds: float) -> None:
        """Wait until every program is ready; raises ``NotReadyError`` with the last log lines of one that is not."""
        end = time.monotonic() + deadline_seconds
        for name, running in self._running.items():
            while not running.program.ready(running.process.pid):
                if running.process.poll() is not None or time.monotonic() > end:
                    state = "ended" if running.process.poll() is not None else "is not ready"
                    raise NotReadyError(f"{name} {state}. Its log, {self.log_of(name)}, ends:\n{self.tail(name)}")
                time.sleep(0.05)

    def alive(self) -> dict[str, int | None]:
        """The pid of each program, None for one that is down."""
        return {
            name: running.process.pid if running.process.poll() is None else None
            for name, running in self._running.items()
        }

    def restarts(self) -> dict[str, int]:
        """How often each program was started again."""
        return {name: running.restarts for name, running in self._running.items()}

    def kill(self, name: str) -> None:
        """SIGKILL to the program's own process, as an out-of-memory kill would."""
        self._running[name].process.kill()

    def stop(self, deadline_seconds: float) -> None:
        """SIGTERM to all at once, SIGKILL to the groups of those that are still there at the deadline."""
        for running in self._running.values():
            with contextlib.suppress(ProcessLookupError):
                running.process.send_signal(signal.SIGTERM)
        end = time.monotonic() + deadline_seconds
        for running in self._running.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.process.wait(max(0.0, end - time.monotonic()))
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(running.process.pid, signal.SIGKILL)
            running.process.wait()
        self._running.clear()

    def log_of(self, name: str) -> Path:
        """Where the program's output goes."""
        return self.logs / f"{name}.log"

    def tail(self, name: str, lines: int = 15) -> str:
        """The end of the program's log."""
        try:
            return "\n".join(self.log_of(name).read_text(errors="replace").splitlines()[-lines:])
        except FileNotFoundError:
            return ""

    def _spawn(self, program: Program) -> subprocess.Popen[bytes]:
        with self.log_of(program.name).open("ab") as log:
            return spawn(program.command, log=log, death_signal=signal.SIGKILL, environ=program.environment)


def _reason(code: int) -> str:
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name
