"""A claimed row, as delivery sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any
from uuid import UUID

from outbox_mail.names import Priority


@dataclass(frozen=True, slots=True)
class AttachmentRef:
    """Where an attachment's bytes are. ``owned``: the file goes when the last row that refers to it is retained."""

    filename: str
    content_type: str
    storage_ref: str
    owned: bool = False
    content_id: str | None = None
    """Set for an inline image that the HTML refers to as ``cid:…``."""


@dataclass(frozen=True, slots=True)
class Message:
    """One claimed row. Nothing in it is trusted: rows are written by any language through SQL alone."""

    id: UUID
    to: Sequence[str]
    cc: Sequence[str]
    bcc: Sequence[str]
    template: str
    parameters: Mapping[str, Any]
    schema_version: int
    attachments: object
    """JSON as it is in the row; ``attachments.refs_from_json`` reads it."""
    created_at: datetime
    claims: int
    attempt_count: int
    priority: int = Priority.NORMAL
    send_at: datetime | None = None
    locale: str | None = None
    sender: str | None = None
    reply_to: Sequence[str] = ()
    headers: Mapping[str, str] | None = None
    outcomes: Mapping[str, Mapping[str, Any]] | None = None
    """Per address, when an earlier attempt settled some; one with ``state`` accepted or refused is done."""
    ordering_key: str | None = None
    at_most_once: bool = False
    trace_context: Mapping[str, str] | None = None

    @property
    def dated_at(self) -> datetime:
        """What ``Date:`` says: the later of when it was asked for and when it was wanted. The same on every attempt."""
        return max(self.created_at, self.send_at) if self.send_at else self.created_at


def message_from_row(row: Mapping[str, Any]) -> Message:
    """The message of a claimed row. JSON of a shape that nobody here writes is read as if it were not there.

    ``attachments``, ``headers`` and ``parameters`` stay as they are: whoever reads them refuses what is wrong, by name.
    """
    columns = {field.name: row[field.name] for field in fields(Message)}
    outcomes = columns["outcomes"]
    if isinstance(outcomes, dict):
        columns["outcomes"] = {address: item for address, item in outcomes.items() if isinstance(item, dict)}
    else:
        columns["outcomes"] = None
    return Message(**columns)
