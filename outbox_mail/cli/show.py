"""What reaches a terminal or a script. Rows are written by others: nothing in them may steer the terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal

from outbox_mail.observe.escape import safe

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

_PIPE_WIDTH: Final = 200

__all__ = [
    "STYLES",
    "ago",
    "console",
    "fields",
    "messages",
    "one_line_json",
    "print_json",
    "safe",
    "table",
    "text",
    "when",
]

STYLES: Final = {
    "PENDING": "yellow",
    "SENDING": "cyan",
    "SENT": "green",
    "FAILED": "red",
    "ok": "green",
    "warning": "yellow",
    "problem": "bold red",
}


def one_line_json(value: object) -> str:
    """JSON in ASCII on one line; times in ISO 8601, durations in seconds."""
    return json.dumps(value, default=_plain, ensure_ascii=True)


def print_json(value: object) -> None:
    """The only thing on standard output of a command with ``--json``."""
    sys.stdout.write(one_line_json(value) + "\n")


def _plain(value: object) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    return dict(value) if isinstance(value, Mapping) else str(value)


def console() -> Console:
    """A console that takes nothing in its text for markup. Wide when it writes into a pipe."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    return Console(markup=False, highlight=False, emoji=False, width=width)


def text(value: object, style: str = "") -> Text:
    """Safe text in a style."""
    from rich.text import Text

    return Text(safe(value), style=style)


def table(
    columns: Sequence[str], rows: Iterable[Sequence[RenderableType | None]], *, right: Sequence[str] = ()
) -> Table:
    """A plain table; each cell is text that ``text`` made safe, or a plain string, which is made safe here."""
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        # An id that is broken in two can't be copied.
        justify: Literal["left", "right"] = "right" if column in right else "left"
        made.add_column(column, justify=justify, overflow="fold", no_wrap=column == "id")
    for row in rows:
        made.add_row(*(text(cell) if isinstance(cell, str) else cell for cell in row))
    return made


def fields(pairs: Iterable[tuple[str, RenderableType]]) -> Table:
    """Names and values below each other."""
    from rich.table import Table

    made = Table.grid(padding=(0, 2))
    for name, value in pairs:
        made.add_row(text(name, "bold"), text(value) if isinstance(value, str) else value)
    return made


def messages(number: int) -> str:
    """A number of messages in words."""
    return "1 message" if number == 1 else f"{number:,} messages"


def ago(seconds: float | None) -> str:
    """A duration for people."""
    if seconds is None:
        return "–"
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def when(moment: datetime | None) -> str:
    """A time for people, in UTC."""
    from datetime import UTC

    return "–" if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
