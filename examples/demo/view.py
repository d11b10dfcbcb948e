"""What a person sees in the terminal while the demo runs, and the table at its end."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from examples.demo.outcome import Outcome
from examples.demo.table import Glance

_STATUS_STYLES = {"PENDING": "yellow", "SENDING": "cyan", "SENT": "green", "FAILED": "red"}
_PROGRESS_SECONDS = 2.0
_REASONS_SHOWN = 3


@dataclass(frozen=True)
class Scene:
    """One moment of the demo."""

    orders: int
    promised: int
    glance: Glance
    processes: Mapping[str, int | None]
    restarts: Mapping[str, int]
    last_mails: Sequence[tuple[str, str]]
    """To and Subject, the newest first."""


class View(Protocol):
    """Shows the demo while it runs. Used from one thread."""

    def say(self, line: str) -> None:
        """Something that happened."""

    def show(self, scene: Scene) -> None:
        """How things stand; called several times a second."""

    def close(self) -> None:
        """Leave the terminal as it was."""


@dataclass
class Lines:
    """Plain lines on standard error, for pipes and logs."""

    _shown_at: float = 0.0
    _last: str = ""

    def say(self, line: str) -> None:
        """Print it."""
        print(line, file=sys.stderr, flush=True)

    def show(self, scene: Scene) -> None:
        """Print the counts now and then, when they changed."""
        counts = "  ".join(f"{status} {scene.glance.counts.get(status, 0)}" for status in _STATUS_STYLES)
        down = [name for name, pid in scene.processes.items() if pid is None]
        line = f"orders {scene.orders}  {counts}" + (f"  down: {', '.join(down)}" if down else "")
        if time.monotonic() - self._shown_at >= _PROGRESS_SECONDS and line != self._last:
            self._shown_at, self._last = time.monotonic(), line
            self.say(line)

    def close(self) -> None:
        """Nothing to put back."""


@dataclass
class Screen:
    """A live display for a terminal."""

    addresses: Mapping[str, str]
    console: Console = field(default_factory=Console)
    _said: deque[str] = field(default_factory=lambda: deque(maxlen=5))

    def __post_init__(self) -> None:
        self._live = Live(console=self.console, auto_refresh=False, transient=True)
        self._live.start()

    def say(self, line: str) -> None:
        """Keep it in view for a while."""
        self._said.append(f"{time.strftime('%H:%M:%S')}  {line}")

    def show(self, scene: Scene) -> None:
        """Draw it."""
        self._live.update(
            Group(
                _addresses(self.addresses),
                Panel(_counts(scene), title="messages", title_align="left"),
                Panel(_processes(scene), title="processes", title_align="left"),
                Panel(_mails(scene.last_mails), title="last mails received", title_align="left"),
                Text("\n".join(self._said), style="yellow"),
                Text("Ctrl-C ends the demo", style="dim"),
            ),
            refresh=True,
        )

    def close(self) -> None:
        """End the display."""
        self._live.stop()


def _addresses(addresses: Mapping[str, str]) -> Table:
    table = Table.grid(padding=(0, 2))
    for name, address in addresses.items():
        table.add_row(Text(name, style="bold"), address)
    return table


def _counts(scene: Scene) -> Table:
    table = Table.grid(padding=(0, 3))
    table.add_row(
        *(
            Text.assemble((f"{scene.glance.counts.get(status, 0):>6} ", f"bold {style}"), (status, style))
            for status, style in _STATUS_STYLES.items()
        )
    )
    age = scene.glance.oldest_due_seconds
    table.add_row(
        Text(f"oldest due PENDING: {'none' if age is None else f'{age:.1f} s'}"),
        Text(f"ids at the broker: {scene.glance.out}"),
        Text(f"waiting for a retry: {scene.glance.retrying}"),
        Text(f"orders: {scene.orders}, mails asked for: {scene.promised}"),
    )
    return table


def _processes(scene: Scene) -> Table:
    table = Table.grid(padding=(0, 3))
    cells = [
        Text.assemble(
            ("● ", "green" if pid else "red"),
            (name, "bold"),
            f" {pid or 'down'}",
            (f" restarted {scene.restarts[name]}×" if scene.restarts.get(name) else "", "yellow"),
        )
        for name, pid in scene.processes.items()
    ]
    for start in range(0, len(cells), 4):
        table.add_row(*cells[start : start + 4])
    return table


def _mails(mails: Sequence[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2))
    for recipient, subject in mails:
        table.add_row(Text(recipient, style="dim", no_wrap=True), Text(subject, no_wrap=True))
    return table if mails else Table.grid()


def print_outcome(console: Console, outcome: Outcome, seconds: float) -> None:
    """The table at the end: each kind of mail, how it should end, and how it did."""
    table = Table(title=f"After {seconds:.1f} s", title_justify="left")
    for heading in ("mail", "must end", "asked", "right", "retried"):
        table.add_column(heading, justify="left" if heading in {"mail", "must end"} else "right")
    for scene in outcome.scenes:
        style = "green" if scene.as_it_should_be == scene.asked else "bold red"
        table.add_row(
            scene.scene,
            scene.expected,
            str(scene.asked),
            Text(str(scene.as_it_should_be), style=style),
            str(scene.retried or ""),
        )
    console.print(table)
    for scene in outcome.scenes:
        for reason in sorted(scene.reasons)[:_REASONS_SHOWN]:
            console.print(Text(f"FAILED, {scene.scene}: {reason}", style="dim"))
    copies = f"{outcome.copies} of them a second time" if outcome.copies else "each exactly once"
    console.print(f"The SMTP server took {outcome.accepted} mails for {outcome.sent} SENT rows, {copies}.")
    if outcome.copies and outcome.copies <= outcome.copies_allowed:
        console.print("A worker was killed after the server took a mail and before SENT was recorded: it goes again.")
    for problem in outcome.problems:
        console.print(Text(f"WRONG: {problem}", style="bold red"))
    console.print(
        Text("Everything is as it should be.", style="bold green")
        if outcome.ok
        else Text("Not as it should be.", style="bold red")
    )
