"""Composed mails to test providers with."""

from __future__ import annotations

from uuid import UUID, uuid4

from outbox_mail.mail.providers.base import Composed


def composed_mail(
    *recipients: str,
    sender: str = "shop@example.com",
    body: bytes = b"Hello.\r\n",
    id: UUID | None = None,  # noqa: A002 - the row's name for it
    needs_smtputf8: bool = False,
) -> Composed:
    """A small legal mail to ``recipients`` (``someone@example.com`` if none), with a new id if none is given."""
    id = id or uuid4()  # noqa: A001
    message_id = f"<{id}@shop.example.com>"
    header = f"From: {sender}\r\nTo: undisclosed-recipients:;\r\nSubject: A mail\r\nMessage-ID: {message_id}\r\n\r\n"
    return Composed(
        id=id,
        message_id=message_id,
        envelope_sender=sender,
        recipients=recipients or ("someone@example.com",),
        data=header.encode() + body,
        needs_smtputf8=needs_smtputf8,
    )
