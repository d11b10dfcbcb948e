"""The demo's children are restarted when they die and die with their parent, however it dies."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from examples.demo.programs import NotReadyError, Program, Supervisor


def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "not within the deadline"
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def sleeper(name: str = "sleeper") -> Program:
    return Program(name, [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"], {})


def test_a_program_that_was_killed_is_started_again(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path)
    supervisor.start(sleeper())
    try:
        first = supervisor.alive()["sleeper"]
        supervisor.kill("sleeper")
        said: list[str] = []

        def restarted() -> bool:
            said.extend(supervisor.tend())
            return supervisor.restarts()["sleeper"] == 1

        until(restarted)
        assert said == ["sleeper ended (SIGKILL); starting it again"]
        assert supervisor.alive()["sleeper"] not in {None, first}
    finally:
        supervisor.stop(5)


def test_a_program_that_keeps_dying_is_started_less_and_less_often(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path)
    supervisor.start(Program("broken", [sys.executable, "-c", "raise SystemExit(3)"], {}))
    try:
        said: list[str] = []
        begun_at = time.monotonic()
        while supervisor.restarts()["broken"] < 3:
            said += supervisor.tend()
            time.sleep(0.02)
        assert time.monotonic() - begun_at > 0.2 + 0.5 + 1.0
        assert said[0] == "broken ended (exit code 3); starting it again"
    finally:
        supervisor.stop(5)


def test_waiting_for_a_program_that_ends_shows_its_last_words(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path)
    program = Program("broken", [sys.executable, "-c", "raise SystemExit('no such flag')"], {}, ready=lambda _: False)
    supervisor.start(program)
    try:
        with pytest.raises(NotReadyError, match=r"broken ended.*\n.*no such flag"):
            supervisor.wait_ready(20)
    finally:
        supervisor.stop(5)


def test_stopping_kills_what_does_not_listen_with_its_children(tmp_path: Path) -> None:
    deaf = (
        "import signal, subprocess, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); "
        "print(child.pid, flush=True); time.sleep(600)"
    )
    supervisor = Supervisor(tmp_path)
    supervisor.start(Program("deaf", [sys.executable, "-c", deaf], {}))
    until(lambda: supervisor.tail("deaf").strip().isdigit())
    parent, child = supervisor.alive()["deaf"], int(supervisor.tail("deaf"))
    assert parent is not None
    supervisor.stop(0.5)
    until(lambda: not is_running(parent) and not is_running(child))


def test_children_die_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    code = """
import pathlib, sys, time
from examples.demo.programs import NotReadyError, Program, Supervisor
folder = pathlib.Path(sys.argv[1])
child = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
Supervisor(folder).start(Program("child", [sys.executable, "-c", child], {}))
time.sleep(600)
"""
    parent = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], cwd=Path(__file__).parents[3])
    log = tmp_path / "child.log"
    try:
        until(lambda: log.exists() and log.read_text().strip().isdigit())
        child = int(log.read_text())
        assert is_running(child)
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    until(lambda: not is_running(child))
