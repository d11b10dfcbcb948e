"""The one row that all relays share: whether they sleep, and the mark that they left in the broker."""

from __future__ import annotations

from typing import Any

from psycopg import Connection

from outbox_mail.outbox.due import REPAIR_LOCK


def mark_asleep(connection: Connection[Any]) -> bool:
    """From the commit on, producers ring the doorbell. True: it was not so before. Writes only then."""
    return _set_asleep(connection, asleep=True)


def mark_awake(connection: Connection[Any]) -> bool:
    """From the commit on, producers don't ring. True: it was not so before. Writes only then."""
    return _set_asleep(connection, asleep=False)


def _set_asleep(connection: Connection[Any], *, asleep: bool) -> bool:
    return (
        connection.execute(
            """INSERT INTO outbox_relay_state AS s (id, asleep) VALUES (1, %(asleep)s)
                ON CONFLICT (id) DO UPDATE SET asleep = excluded.asleep WHERE s.asleep <> excluded.asleep""",
            {"asleep": asleep},
        ).rowcount
        == 1
    )


def broker_mark(connection: Connection[Any]) -> str | None:
    """The mark that the broker should hold; None before the first start."""
    row = connection.execute("SELECT broker_mark FROM outbox_relay_state").fetchone()
    return row[0] if row else None


def lock_for_repair(connection: Connection[Any]) -> None:
    """Wait until every round under way has ended, and keep new ones out until the caller's transaction ends.

    Raises ``psycopg.errors.LockNotAvailable`` after the session's ``lock_timeout``.
    """
    connection.execute("SELECT pg_advisory_xact_lock(%s)", [REPAIR_LOCK])


def exchange_mark(connection: Connection[Any], old: str | None, new: str) -> bool:
    """Remember a new mark, if the old one still stands. False: another relay was faster."""
    return (
        connection.execute(
            """INSERT INTO outbox_relay_state AS s (id, broker_mark) VALUES (1, %(new)s)
                ON CONFLICT (id) DO UPDATE SET broker_mark = excluded.broker_mark
                WHERE s.broker_mark IS NOT DISTINCT FROM %(old)s""",
            {"old": old, "new": new},
        ).rowcount
        == 1
    )
