"""What the shop asked the outbox for, and how it must end."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID


class End(StrEnum):
    """How a mail must end."""

    SENT = "SENT"
    FAILED = "FAILED"
    NOWHERE = "nowhere"
    """Its transaction was rolled back: no row, no mail."""


@dataclass(frozen=True)
class Promise:
    """One mail that the shop asked for. ``error_code`` is what a FAILED one must show."""

    id: UUID
    scene: str
    end: End = End.SENT
    error_code: str | None = None
    after_retry: bool = False
