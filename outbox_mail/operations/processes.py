"""The relays, workers and beats: who they are, and whether they get anywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from psycopg import Connection
from psycopg.rows import class_row

KINDS: Final = ("relay", "worker", "beat")


@dataclass(frozen=True, slots=True)
class Process:
    """One row of ``outbox_processes``: what it last achieved and how long ago by the database's clock."""

    name: str
    kind: str
    host: str
    pid: int
    doing: str
    started_at: datetime
    progress_at: datetime
    idle_seconds: float
    details: Mapping[str, Any]


def list_processes(connection: Connection[Any]) -> list[Process]:
    """Every process that reported and did not say good-bye, by kind and name. One that was killed stays listed."""
    with connection.cursor(row_factory=class_row(Process)) as cursor:
        return cursor.execute(
            """SELECT name, kind, host, pid, doing, started_at, progress_at,
                extract(epoch FROM now() - progress_at)::float8 AS idle_seconds, details
            FROM outbox_processes ORDER BY kind, name LIMIT 1000"""
        ).fetchall()


@dataclass(frozen=True, slots=True)
class Health:
    """Whether each kind of process makes progress: that it once did, or is merely there, counts for nothing."""

    stale_seconds: float
    alive: Mapping[str, Sequence[Process]]
    stale: Mapping[str, Sequence[Process]]

    def healthy(self, kinds: Sequence[str] = KINDS) -> bool:
        """At least one process of each kind made progress lately."""
        return all(self.alive.get(kind) for kind in kinds)


def health(connection: Connection[Any], *, stale_seconds: float, host: str | None = None) -> Health:
    """Ask the database for each process's last progress; ``host``: of the processes of this machine alone."""
    alive: dict[str, list[Process]] = {kind: [] for kind in KINDS}
    stale: dict[str, list[Process]] = {kind: [] for kind in KINDS}
    for process in list_processes(connection):
        if host is not None and process.host != host:
            continue
        group = alive if process.idle_seconds <= stale_seconds else stale
        group.setdefault(process.kind, []).append(process)
    return Health(stale_seconds, alive, stale)
