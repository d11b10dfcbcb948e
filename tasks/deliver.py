"""The task that delivers: ids in, nothing out."""

from __future__ import annotations

import logging
from typing import Any
from uuid import UUID

from kombu.exceptions import KombuError, OperationalError
from redis import RedisError

from outbox_mail.errors import DatabaseUnavailableError
from outbox_mail.mail.delivery import Countdown, Delivery
from outbox_mail.names import DELIVER_TASK, QUEUES
from tasks import app, process

_log = logging.getLogger(__name__)


@app.task(name=DELIVER_TASK)
def deliver(ids: Any = None, *_: Any, **__: Any) -> None:
    """Deliver each id in turn. Whatever is no id is dropped with a log record: the broker is not trusted."""
    waiting = _parsed(ids)
    parts = process.delivery()
    try:
        while waiting and not process.leaving.is_set():
            if (countdown := parts.deliver(waiting.pop(0))) is not None:
                _send(parts, countdown)
        if waiting:
            # The worker leaves; the relay gives these to another.
            parts.unpublish(waiting)
    except DatabaseUnavailableError:
        # Nothing is lost: the rows stand as they are, and the relay publishes them again.
        _log.warning("delivery_put_off", extra={"count": len(waiting) + 1})


def _parsed(ids: Any) -> list[UUID]:
    if not isinstance(ids, list):
        _log.error("task_refused", extra={"problem": f"ids is {type(ids).__name__}, not a list"})
        return []
    parsed = []
    for id_ in ids:
        try:
            parsed.append(UUID(id_))
        except (ValueError, TypeError, AttributeError):
            _log.error("task_refused", extra={"problem": f"an id is {type(id_).__name__} and no UUID"})
    return parsed


def _send(parts: Delivery, countdown: Countdown) -> None:
    try:
        deliver.apply_async(
            args=([str(countdown.id)],), countdown=countdown.delay_seconds, queue=QUEUES[countdown.priority]
        )
    except (KombuError, OperationalError, RedisError, OSError) as error:
        _log.warning("countdown_not_sent", extra={"message_id": str(countdown.id), "error": type(error).__name__})
        parts.unpublish([countdown.id])
