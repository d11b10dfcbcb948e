"""Waking a sleeping relay from the service's own side."""

from __future__ import annotations

from typing import Any

from psycopg import Connection

from outbox_mail.names import DOORBELL_CHANNEL


def ring(connection: Connection[Any]) -> None:
    """Let a sleeping relay look at the table now. Does nothing while none sleeps."""
    connection.execute("SELECT pg_notify(%s, '') FROM outbox_relay_state WHERE asleep", [DOORBELL_CHANNEL])
