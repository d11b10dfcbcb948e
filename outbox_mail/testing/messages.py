"""Claimed rows to test with."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from outbox_mail.mail.message import Message


def claimed_message(**changes: Any) -> Message:
    """A small row as delivery sees it; ``changes`` are fields of ``Message``, of whatever type a row may hold."""
    fields: dict[str, Any] = {
        "id": UUID("0198f0a1-2b3c-7d4e-8f50-61728394a5b6"),
        "to": ["ayse@example.com"],
        "cc": [],
        "bcc": [],
        "template": "ORDER_CONFIRMED",
        "parameters": {},
        "schema_version": 1,
        "attachments": [],
        "created_at": datetime(2026, 3, 5, 12, 30, 1, tzinfo=UTC),
        "claims": 1,
        "attempt_count": 0,
    }
    return Message(**(fields | changes))
