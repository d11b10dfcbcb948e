"""The tables of the mail outbox, as SQLAlchemy metadata.

A producer's own Alembic can carry them: add ``outbox_mail.mail.tables.metadata`` to its ``target_metadata`` list.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    CheckConstraint,
    Column,
    DateTime,
    Index,
    MetaData,
    SmallInteger,
    Table,
    Text,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from outbox_mail.outbox.columns import (
    STORAGE_PARAMETERS,
    attempts_table,
    holds_table,
    processes_table,
    relay_state_table,
    steering_columns,
    steering_constraints,
    steering_indexes,
    turns_table,
)

metadata: Final = MetaData()

_EMPTY_ARRAY: Final = text("'{}'::text[]")


def _addresses(name: str, comment: str) -> Column[Any]:
    return Column(name, ARRAY(Text), nullable=False, server_default=_EMPTY_ARRAY, comment=comment)


def _mail_columns() -> list[Column[Any]]:
    return [
        _addresses("to", "mailboxes as they were at enqueue: name <local@domain>"),
        _addresses("cc", "likewise"),
        _addresses("bcc", "likewise; in the envelope only"),
        Column("template", Text, nullable=False),
        Column("parameters", JSONB, nullable=False, server_default=text("'{}'::jsonb")),
        Column("schema_version", SmallInteger, nullable=False, server_default="1", comment="of the parameters"),
        Column("attachments", JSONB, nullable=False, server_default=text("'[]'::jsonb"), comment="references"),
        Column("locale", Text),
        Column("sender", Text),
        _addresses("reply_to", "mailboxes"),
        Column("headers", JSONB),
        Column("provider", Text, comment="who accepted or refused it last"),
        Column("provider_message_id", Text),
        Column("outcomes", JSONB, comment="per address, only when not all were accepted at once"),
    ]


_TABLE: Final = "email_messages"

email_messages: Final = Table(
    _TABLE,
    metadata,
    *steering_columns(),
    *_mail_columns(),
    *steering_constraints(_TABLE),
    CheckConstraint('cardinality("to") + cardinality(cc) + cardinality(bcc) > 0', name=f"{_TABLE}_recipients_check"),
    CheckConstraint("template <> '' AND char_length(template) <= 200", name=f"{_TABLE}_template_check"),
    CheckConstraint("jsonb_typeof(parameters) = 'object'", name=f"{_TABLE}_parameters_check"),
    CheckConstraint("jsonb_typeof(attachments) = 'array'", name=f"{_TABLE}_attachments_check"),
    *steering_indexes(_TABLE),
    # Who else uses this file? Asked by retention; only rows with attachments pay for it.
    Index(
        f"{_TABLE}_attachments",
        "attachments",
        postgresql_using="gin",
        postgresql_ops={"attachments": "jsonb_path_ops"},
        postgresql_where=text("attachments <> '[]'::jsonb"),
    ),
    postgresql_with=STORAGE_PARAMETERS,
)

email_attempts: Final = attempts_table("email_attempts", _TABLE, metadata)

email_messages_archive: Final = Table(
    "email_messages_archive",
    metadata,
    *(
        Column(column.name, column.type, nullable=not column.primary_key, primary_key=column.primary_key)
        for column in email_messages.columns
    ),
    Column("archived_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
)
"""Where retention moves finished rows when it is told to keep them: the same columns, no constraints, one index."""

outbox_holds: Final = holds_table(metadata)
outbox_processes: Final = processes_table(metadata)
outbox_relay_state: Final = relay_state_table(metadata)
outbox_turns: Final = turns_table(metadata)

email_files_to_remove: Final = Table(
    "email_files_to_remove",
    metadata,
    Column("storage_ref", Text, primary_key=True),
    Column("recorded_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
)
"""Owned attachment files whose last row may be gone: recorded with the row's deletion, removed after its commit."""
