"""Processes write down what they last achieved, so that health needs the database only."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Any, Final

from psycopg import Connection
from psycopg.types.json import Jsonb

FORGOTTEN_AFTER_SECONDS: Final = 86_400
"""A process that left without a word is listed for this long."""


def process_name(kind: str) -> str:
    """This process's name in the table: ``kind@host:pid``."""
    return f"{kind}@{socket.gethostname()}:{os.getpid()}"


def report_progress(
    connection: Connection[Any],
    kind: str,
    doing: str,
    details: Mapping[str, Any] | None = None,
    *,
    started: bool = False,
) -> str:
    """Write down that this process got somewhere just now, by the database's clock; returns its name.

    Call it when something was achieved or found to be nothing to do, never from a timer of its own: a loop that hangs
    must fall silent. Every few seconds is enough. ``started``: the first report of this process, which begins anew
    what another one of the same name left, and removes what was silent for a day.
    """
    name = process_name(kind)
    connection.execute(
        """INSERT INTO outbox_processes AS p (name, kind, host, pid, doing, details)
            VALUES (%(name)s, %(kind)s, %(host)s, %(pid)s, %(doing)s, %(details)s)
            ON CONFLICT (name) DO UPDATE SET doing = excluded.doing, details = excluded.details, progress_at = now(),
                started_at = CASE WHEN %(started)s THEN now() ELSE p.started_at END""",
        {
            "name": name,
            "kind": kind,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "doing": doing,
            "details": Jsonb(dict(details or {})),
            "started": started,
        },
    )
    if started:
        prune(connection)
    return name


def forget(connection: Connection[Any], name: str) -> None:
    """Remove a process that leaves in good order."""
    connection.execute("DELETE FROM outbox_processes WHERE name = %s", [name])


def prune(connection: Connection[Any], *, older_than_seconds: float = FORGOTTEN_AFTER_SECONDS) -> int:
    """Remove processes that were silent for longer; returns how many."""
    return connection.execute(
        "DELETE FROM outbox_processes WHERE progress_at < now() - make_interval(secs => %s)", [older_than_seconds]
    ).rowcount
