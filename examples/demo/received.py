"""Mails as the SMTP server took them, parsed for a reader."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass
from email import message_from_bytes, policy
from email.message import EmailMessage
from functools import cached_property
from typing import Final

SHOWN_HEADERS: Final = ("From", "To", "Cc", "Reply-To", "Date", "Subject")
_CID = re.compile(r"cid:([^\s\"'<>)]+)")


@dataclass(frozen=True)
class Attached:
    """A part that is not the text to read."""

    filename: str
    content_type: str
    content: bytes


@dataclass(frozen=True)
class Received:
    """One accepted mail; ``number`` is its place in the order of arrival."""

    number: int
    envelope_sender: str
    envelope_recipients: Sequence[str]
    data: bytes

    @cached_property
    def message(self) -> EmailMessage:
        """The mail, parsed by the standard library."""
        return message_from_bytes(self.data, policy=policy.default)

    def header(self, name: str) -> str:
        """A header as text; empty when it is missing."""
        return str(self.message.get(name, ""))

    @cached_property
    def headers(self) -> list[tuple[str, str]]:
        """All headers in order."""
        return [(name, str(value)) for name, value in self.message.items()]

    @cached_property
    def text(self) -> str | None:
        """The text alternative."""
        return self._body("plain")

    @cached_property
    def html(self) -> str | None:
        """The HTML alternative, its inline images put in place as data: URLs."""
        html = self._body("html")
        return html and _CID.sub(lambda found: self._inline(found.group(1)) or found.group(0), html)

    @cached_property
    def attachments(self) -> list[Attached]:
        """What can be downloaded."""
        return [
            Attached(part.get_filename() or f"part-{place}", part.get_content_type(), _bytes(part))
            for place, part in enumerate(self.message.iter_attachments(), start=1)
        ]

    def _body(self, kind: str) -> str | None:
        part = self.message.get_body((kind,))
        if not isinstance(part, EmailMessage):
            return None
        try:
            return _bytes(part).decode(part.get_content_charset("utf-8"), "replace")
        except LookupError:  # a charset that nobody knows
            return _bytes(part).decode("utf-8", "replace")

    def _inline(self, content_id: str) -> str | None:
        for part in self.message.walk():
            if part.get("Content-ID", "").strip("<> ") == content_id and part.get_content_maintype() == "image":
                return f"data:{part.get_content_type()};base64,{base64.b64encode(_bytes(part)).decode()}"
        return None


def _bytes(part: EmailMessage) -> bytes:
    content = part.get_payload(decode=True)
    return content if isinstance(content, bytes) else part.as_bytes()
