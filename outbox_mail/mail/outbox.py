"""The mail outbox's tables, as the core's transitions know them."""

from __future__ import annotations

from typing import Final

from outbox_mail.mail.tables import email_messages, email_messages_archive
from outbox_mail.outbox.transitions import Outbox

MAIL: Final = Outbox(
    table=email_messages.name,
    attempts="email_attempts",
    kind="template",
    claimed=(
        "id",
        "to",
        "cc",
        "bcc",
        "template",
        "parameters",
        "schema_version",
        "attachments",
        "priority",
        "created_at",
        "send_at",
        "claims",
        "attempt_count",
        "locale",
        "sender",
        "reply_to",
        "headers",
        "outcomes",
        "ordering_key",
        "at_most_once",
        "trace_context",
    ),
    archive=email_messages_archive.name,
    columns=tuple(email_messages.columns.keys()),
)
