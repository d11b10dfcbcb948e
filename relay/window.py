"""How much may go out, and in what pieces. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from outbox_mail.names import Priority
from outbox_mail.outbox.due import DueRow

SPREAD: Final = 16
"""A round is packed into at least this many tasks, so that all workers get a share of it."""


@dataclass(frozen=True, slots=True)
class Hint:
    """One task to publish: ids of one priority, in the order in which they became due."""

    priority: Priority
    ids: tuple[UUID, ...]
    trace_context: Mapping[str, Any] | None
    """The producer's, when the task has one id; a worker finds those of several on their rows."""


def rooms(window: int, out: Mapping[Priority, int], *, batch: int, relays: int) -> dict[Priority, int]:
    """How many ids of each priority may still go out, so that all relays together stay within ``window``.

    What other relays are just publishing can't be seen, at most ``batch`` each: their places are kept free.
    """
    own = max(window - (relays - 1) * batch, window // relays, 1)
    return {priority: max(0, own - out.get(priority, 0)) for priority in Priority}


def limit(batch: int, failures: int) -> int:
    """How many rows to take after ``failures`` rounds in a row whose publishing failed.

    A broker that takes ids but is too slow to say so gets the same ones again: few, while that lasts.
    """
    return max(1, batch >> min(2 * failures, 30))


def ids_per_task(count: int, most: int) -> int:
    """How many ids share a task when a round has ``count`` of a priority: one when few, ``most`` in a backlog."""
    return max(1, min(most, count // SPREAD))


def pack(rows: Iterable[DueRow], most: int) -> list[Hint]:
    """Pack rows into tasks: the urgent first, the oldest first, never two priorities in one."""
    by_priority: dict[Priority, list[DueRow]] = {priority: [] for priority in Priority}
    for row in rows:
        by_priority[row.priority].append(row)
    return [
        _hint(priority, chunk)
        for priority, same in by_priority.items()
        for chunk in _chunks(sorted(same, key=lambda row: -row.age_seconds), ids_per_task(len(same), most))
    ]


def _chunks(rows: Sequence[DueRow], size: int) -> Iterable[Sequence[DueRow]]:
    return (rows[start : start + size] for start in range(0, len(rows), size))


def _hint(priority: Priority, rows: Sequence[DueRow]) -> Hint:
    return Hint(priority, tuple(row.id for row in rows), rows[0].trace_context if len(rows) == 1 else None)
