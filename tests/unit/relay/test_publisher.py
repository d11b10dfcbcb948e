"""What the publisher refuses, hides and copies from Celery."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
import pytest
from celery import Celery

from outbox_mail.errors import ConfigurationError
from outbox_mail.names import DELIVER_TASK, Priority
from relay.envelope import Envelopes
from relay.publisher import Publisher, redacted
from relay.window import Hint

HINT = Hint(Priority.NORMAL, (UUID(int=1), UUID(int=2)), None)


def published_by_celery(app: Celery, channel: Any, ids: list[str]) -> dict[str, Any]:
    sent: list[dict[str, Any]] = []
    channel._put = lambda _queue, message, **_: sent.append(message)
    app.send_task(
        DELIVER_TASK, args=(ids,), queue="mail.normal", ignore_result=True, producer=app.amqp.Producer(channel)
    )
    (message,) = sent
    return message


def test_the_envelope_is_the_one_that_celery_would_send() -> None:
    app = Celery("test", broker="memory://", set_as_current=False)
    with app.connection_for_write() as connection:
        channel = connection.channel()
        ours = Envelopes(app).message(channel, HINT, 0)
        theirs = published_by_celery(app, channel, [str(id_) for id_ in HINT.ids])

    varying = {"id", "root_id"}
    assert {k: v for k, v in ours["headers"].items() if k not in varying} == {
        k: v for k, v in theirs["headers"].items() if k not in varying
    }
    assert json.loads(ours["body"]) == json.loads(base64.b64decode(theirs["body"]))
    assert ours["content-type"] == theirs["content-type"]
    assert ours["content-encoding"] == theirs["content-encoding"]
    # kombu adds the rest of the properties when it puts the message on the queue. Nobody waits for a reply.
    for name in ("delivery_mode", "priority"):
        assert ours["properties"][name] == theirs["properties"][name]
    assert ours["properties"]["correlation_id"] == ours["headers"]["id"]


def test_the_memory_broker_is_refused_because_it_has_no_pipeline() -> None:
    app = Celery("test", broker="memory://", set_as_current=False)

    with pytest.raises(ConfigurationError, match="redis://"):
        Publisher(app, timeout_seconds=1).publish([HINT], datetime.now(UTC))


def test_a_key_prefix_is_refused_because_kombu_applies_it_to_some_commands_only() -> None:
    app = Celery("test", broker="redis://", set_as_current=False)
    app.conf.broker_transport_options = {"global_keyprefix": "mine:"}

    with pytest.raises(ConfigurationError, match="global_keyprefix"):
        Publisher(app, timeout_seconds=1)


def test_timeouts_are_set_and_retries_are_off_whatever_the_configuration_says(redis_url: str) -> None:
    app = Celery("test", broker=redis_url, set_as_current=False)
    app.conf.broker_transport_options = {"retry_on_timeout": True, "socket_timeout": None}
    publisher = Publisher(app, timeout_seconds=3)
    publisher.state()

    options = publisher._channel.pool.connection_kwargs
    assert options["socket_timeout"] == options["socket_connect_timeout"] == 3
    assert publisher._channel.supports_batch_publish
    publisher.close()


@pytest.mark.parametrize(
    "text",
    ["can't connect to redis://user:hunter2@host/0", "amqp://:hunter2@host", "postgresql://me:hunter2@h/x\nmore"],
)
def test_an_error_is_told_without_the_password_of_a_url(text: str) -> None:
    told = redacted(OSError(text))

    assert told.startswith("OSError: ")
    assert "hunter2" not in told
    assert "\n" not in told


def test_a_database_that_is_not_migrated_is_told_with_what_to_do() -> None:
    told = redacted(psycopg.errors.UndefinedTable('relation "email_messages" does not exist'))

    assert told.endswith("does not exist. Run outbox-mail migrate")
