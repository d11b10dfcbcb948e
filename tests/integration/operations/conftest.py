"""Messages in every status, made through the real transitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.types.json import Jsonb
from uuid_utils.compat import uuid7

from outbox_mail.mail.outbox import MAIL
from outbox_mail.outbox import transitions
from outbox_mail.outbox.transitions import Failure

Make = Callable[..., UUID]


def _inserted(
    connection: psycopg.Connection[Any],
    *,
    template: str = "ORDER",
    to: str = "ayse@example.com",
    bcc: tuple[str, ...] = (),
    parameters: Any = None,
    tags: tuple[str, ...] = (),
    entity: tuple[str | None, str | None] = (None, None),
    ordering_key: str | None = None,
    priority: int = 2,
) -> UUID:
    id_ = uuid7()
    connection.execute(
        """INSERT INTO email_messages (id, template, "to", bcc, parameters, tags, entity_type, entity_id, ordering_key,
                ordering_seq, priority)
            VALUES (%(id)s, %(template)s, %(to)s, %(bcc)s, %(parameters)s, %(tags)s, %(entity_type)s, %(entity_id)s,
                %(ordering_key)s, CASE WHEN %(ordering_key)s::text IS NOT NULL
                    THEN nextval('outbox_turns_seq_seq') END, %(priority)s)""",
        {
            "id": id_,
            "template": template,
            "to": [to],
            "bcc": list(bcc),
            "parameters": Jsonb(parameters or {}),
            "tags": list(tags),
            "entity_type": entity[0],
            "entity_id": entity[1],
            "ordering_key": ordering_key,
            "priority": priority,
        },
    )
    return id_


@pytest.fixture
def make(connection: psycopg.Connection[Any]) -> Make:
    """``make("FAILED", template="T")`` returns the id of such a message."""

    def made(status: str = "PENDING", *, code: str = "smtp_550", **options: Any) -> UUID:
        id_ = _inserted(connection, **options)
        if status == "PENDING":
            return id_
        row = transitions.claim(connection, MAIL, id_, provider="smtp")
        assert row is not None
        if status == "SENT":
            assert transitions.accept(connection, MAIL, id_, provider="smtp", provider_message_id="x")
        elif status == "FAILED":
            failure = Failure("permanent", code, "no such user", "smtp")
            assert transitions.fail(connection, MAIL, id_, row["claims"], failure)
        return id_

    return made
