"""One hint as Celery's own message (protocol 2), JSON, with ids and trace context and nothing else inside.

Source: https://docs.celeryq.dev/en/stable/internals/protocol.html
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import uuid4

from celery import Celery
from celery.utils.nodenames import anon_nodename
from kombu.serialization import dumps

from outbox_mail.names import DELIVER_TASK
from relay.window import Hint

# https://www.w3.org/TR/trace-context/ ; baggage stays behind: it may hold anything.
_TRACE_HEADERS: Final = ("traceparent", "tracestate")
_MAX_TRACE_CHARS: Final = 512
_PERSISTENT: Final = 2
_dumps: Final[Any] = dumps


class Envelopes:
    """Makes the messages of one Celery application."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._origin = anon_nodename()

    def message(self, channel: Any, hint: Hint, published_at: float) -> dict[str, Any]:
        """The message for ``hint``, as kombu's ``channel`` wants it.

        ``published_at``: seconds since the epoch by the database's clock; it travels as AMQP's ``timestamp``, so that
        the relay can tell how long the oldest message in a queue has waited.
        """
        ids = [str(id_) for id_ in hint.ids]
        headers, properties, body, _ = self._app.amqp.as_task_v2(
            str(uuid4()),
            DELIVER_TASK,
            args=(ids,),
            # What Celery would make of it by a slow way that guards against objects of unknown size.
            argsrepr=repr((ids,)),
            kwargsrepr="{}",
            ignore_result=True,
            origin=self._origin,
        )
        content_type, content_encoding, payload = _dumps(body, serializer="json")
        message: dict[str, Any] = channel.prepare_message(
            payload,
            priority=0,
            content_type=content_type,
            content_encoding=content_encoding,
            headers={**headers, **trace_headers(hint.trace_context)},
            properties={**properties, "delivery_mode": _PERSISTENT, "timestamp": int(published_at)},
        )
        return message


def trace_headers(trace_context: Mapping[str, Any] | None) -> dict[str, str]:
    """What of a producer's trace context may travel; anything else that a row may hold there is dropped."""
    return {
        name: value
        for name in _TRACE_HEADERS
        if isinstance(value := (trace_context or {}).get(name), str)
        and len(value) <= _MAX_TRACE_CHARS
        and value.isascii()
        and value.isprintable()
    }
