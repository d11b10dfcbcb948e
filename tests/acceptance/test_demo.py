"""The whole system as its own processes, seen from outside: what the demo promises."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.timeout(150)


def command(folder: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "examples.demo", "--folder", str(folder), *options]


def until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {seconds} s"
        time.sleep(0.05)


def processes_of(folder: Path) -> dict[int, str]:
    """Whatever names the folder in its arguments or environment, or works in it: the demo and all its children."""
    found = {}
    for process in Path("/proc").iterdir():
        if not process.name.isdigit() or int(process.name) == os.getpid():
            continue
        try:
            arguments = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            said = arguments.encode() + (process / "environ").read_bytes() + str((process / "cwd").readlink()).encode()
        except OSError:
            continue
        if str(folder).encode() in said and arguments:
            found[int(process.name)] = arguments
    return found


def finished(folder: Path, *options: str) -> tuple[int, dict[str, Any], str]:
    ended = subprocess.run(
        command(folder, "--exit", "--json", "--deadline", "100", *options),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=140,
        check=False,
    )
    assert ended.stdout, ended.stderr
    return ended.returncode, json.loads(ended.stdout.splitlines()[-1]), ended.stderr


def test_every_mail_ends_as_it_must_and_nothing_is_left_running(tmp_path: Path) -> None:
    code, outcome, said = finished(tmp_path, "--orders", "40")
    assert code == 0, said
    assert outcome["ok"] is True
    assert outcome["orders"] == 40
    assert outcome["copies"] == 0
    assert outcome["accepted_by_server"] == outcome["sent"]
    assert outcome["failed"] == 2
    assert outcome["rolled_back"] == 1
    assert len(outcome["scenes"]) == 8
    assert processes_of(tmp_path) == {}


@pytest.mark.parametrize("victim", ["relay", "worker", "broker"])
def test_killing_one_in_the_middle_changes_the_time_and_nothing_else(tmp_path: Path, victim: str) -> None:
    code, outcome, said = finished(tmp_path, "--orders", "40", "--kill", victim)
    assert f"kill -9 {victim}" in said
    assert code == 0, said
    assert outcome["sent"] == sum(scene["asked"] for scene in outcome["scenes"].values()) - 3
    assert outcome["copies"] <= (8 if victim == "worker" else 0)
    assert processes_of(tmp_path) == {}


class Endless:
    """A demo without end."""

    def __init__(self, folder: Path) -> None:
        self.log = folder.parent / f"{folder.name}.log"
        self.folder = folder
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command(folder, "--rate", "20"), cwd=ROOT, stdout=log, stderr=log, start_new_session=True
            )
        until(lambda: re.search(r"SENT [1-9]", self.said()) is not None, 60, "the first mail")

    def said(self) -> str:
        return self.log.read_text()


def test_a_killed_demo_leaves_no_process_and_the_next_one_carries_on(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    demo = Endless(folder)
    try:
        inbox = re.search(r"Inbox: (http://\S+)", demo.said())
        assert inbox
        with urllib.request.urlopen(inbox[1], timeout=5) as page:
            assert b"/mail/1" in page.read()
        second = subprocess.run(command(folder), cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
        assert second.returncode == 2
        assert "Another demo is running in" in second.stderr
        assert len(processes_of(folder)) >= 8
    finally:
        demo.process.send_signal(signal.SIGKILL)
        demo.process.wait()
    until(lambda: processes_of(folder) == {}, 10, "the end of all children")
    code, _, said = finished(folder, "--orders", "5")
    assert code == 0, said


def test_ctrl_c_ends_it_within_seconds_and_leaves_no_process(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    demo = Endless(folder)
    begun_at = time.monotonic()
    demo.process.send_signal(signal.SIGINT)
    assert demo.process.wait(30) == 0, demo.said()
    assert time.monotonic() - begun_at < 20
    assert "Everything is as it should be." in demo.said()
    assert processes_of(folder) == {}


@pytest.mark.parametrize("wrong", [["--exit"], ["--orders", "0"], ["--kill", "postgres"], ["--rate", "0"]])
def test_what_makes_no_sense_is_refused_before_anything_starts(tmp_path: Path, wrong: list[str]) -> None:
    ended = subprocess.run(command(tmp_path / "demo", *wrong), cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "error:" in ended.stderr
    assert not (tmp_path / "demo").exists()
