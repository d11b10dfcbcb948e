"""What a mail is made of: the template's output and the attachments' bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RenderedContent:
    """What a template gave for one row. At least one of ``text`` and ``html`` is there."""

    subject: str
    text: str | None
    html: str | None
    sender: str | None = None
    """The template's own sender, for rows that name none."""
    reply_to: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class LoadedAttachment:
    """One attachment with its bytes."""

    filename: str
    content_type: str
    data: bytes = field(repr=False)
    content_id: str | None = None
    """Set for an inline image that the HTML refers to as ``cid:…``."""
