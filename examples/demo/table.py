"""What the demo reads from the outbox's table. It writes nothing there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg import Connection

from examples.demo.outcome import Row

_GLANCE = """
    SELECT status, count(*), count(*) FILTER (WHERE published_at IS NOT NULL AND due_at <= now()),
        count(*) FILTER (WHERE attempt_count > 0 AND due_at > now()),
        extract(epoch FROM now() - min(due_at) FILTER (WHERE due_at <= now()))::float8
    FROM email_messages GROUP BY status"""


@dataclass(frozen=True)
class Glance:
    """The table at one moment."""

    counts: Mapping[str, int]
    out: int
    """PENDING rows whose id is at the broker."""
    retrying: int
    """PENDING rows whose next attempt is due later."""
    oldest_due_seconds: float | None
    """How long the oldest PENDING row that is due has waited."""


def glance(connection: Connection[Any]) -> Glance:
    """Count. Reads the whole table, which is small here; `outbox-mail status` is made for large ones."""
    rows = {row[0]: row[1:] for row in connection.execute(_GLANCE).fetchall()}
    count, out, retrying, oldest = rows.get("PENDING", (0, 0, 0, None))
    return Glance({status: row[0] for status, row in rows.items()} | {"PENDING": count}, out, retrying, oldest)


def rows_by_id(connection: Connection[Any], ids: Sequence[UUID]) -> dict[UUID, Row]:
    """The rows with these ids."""
    found = connection.execute(
        "SELECT id, status, attempt_count, error_code, error_message FROM email_messages WHERE id = ANY (%s)",
        [list(ids)],
    ).fetchall()
    return {row[0]: Row(*row[1:]) for row in found}


def waiting(connection: Connection[Any]) -> set[UUID]:
    """The ids of all rows that are not final."""
    found = connection.execute("SELECT id FROM email_messages WHERE status IN ('PENDING', 'SENDING')").fetchall()
    return {row[0] for row in found}
