"""Handing ids to the broker: Celery's own messages, one pipeline for each round.

The only part of the relay that knows the broker. Everything here may raise ``BrokerError``, which means "uncertain":
what was published may or may not have arrived, so the rows stay as they were and are published again.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import redis
from celery import Celery
from kombu.exceptions import KombuError

from outbox_mail.errors import ConfigurationError, OutboxMailError
from outbox_mail.names import BROKER_MARK_KEY, QUEUES, Priority
from relay.envelope import Envelopes
from relay.window import Hint

_CREDENTIALS: Final = re.compile(r"://[^/@\s]*@")
_OTHER_SCHEMA: Final = frozenset({"42P01", "42703"})
"""SQLSTATEs of a table or column that is not there: the database is not migrated, or not to this version."""
_LOOKED_AT: Final = 50
"""How many of the oldest messages of a queue are looked at for the time of the oldest."""


class BrokerError(OutboxMailError):
    """The broker could not be reached, refused, or did not answer in time. The text holds no secret."""


@dataclass(frozen=True, slots=True)
class BrokerState:
    """The mark that the broker holds, and which run of the server holds it (empty where that may not be asked)."""

    mark: str | None
    run_id: str


@dataclass(frozen=True, slots=True)
class Front:
    """The front of a queue: whether it is empty, and when the oldest message was published (None: not to be told)."""

    empty: bool
    published_at: datetime | None


class Publisher:
    """A connection to the broker, made when first needed and made anew after an error. For one thread."""

    def __init__(self, app: Celery, *, timeout_seconds: float) -> None:
        if app.conf.broker_transport_options.get("global_keyprefix"):
            raise ConfigurationError(
                "celeryconfig: broker_transport_options: global_keyprefix is not supported. "
                "Give each installation a Redis database of its own."
            )
        self._app = app
        self._timeout = timeout_seconds
        self._envelopes = Envelopes(app)
        self._connection: Any = None
        self._channel: Any = None

    def publish(self, hints: Sequence[Hint], published_at: datetime) -> str | None:
        """Publish all hints in one pipeline and return the mark that the broker held just after them."""
        with self._errors():
            channel = self._opened()
            # Never filled, so that kombu does not flush in the middle; the mark is read last, in the same round trip.
            batch = channel.create_publish_batch(max_size=len(hints) + 1)
            try:
                at = published_at.timestamp()
                for hint in hints:
                    message = self._envelopes.message(channel, hint, at)
                    batch.publish(message, exchange="", routing_key=QUEUES[hint.priority])
                batch.pipeline.get(BROKER_MARK_KEY)
                *_, mark = batch.pipeline.execute()
            finally:
                batch.close()
        return _text(mark)

    def state(self) -> BrokerState:
        """Ask the broker for its mark and its run."""
        with self._errors(), self._pipeline() as pipeline:
            pipeline.get(BROKER_MARK_KEY)
            pipeline.info("server")
            mark, server = pipeline.execute(raise_on_error=False)
            if isinstance(mark, Exception):
                raise mark
            # An ACL may forbid INFO: then only a lost mark is noticed.
            run_id = "" if isinstance(server, Exception) else str(server.get("run_id", ""))
        return BrokerState(_text(mark), run_id)

    def leave_mark(self, mark: str) -> None:
        """Leave a mark that is gone when the broker loses its contents."""
        with self._errors():
            self._client().set(BROKER_MARK_KEY, mark)

    def fronts(self) -> dict[Priority, Front]:
        """Look at the oldest messages of each queue."""
        with self._errors(), self._pipeline() as pipeline:
            for queue in QUEUES.values():
                pipeline.lrange(queue, -_LOOKED_AT, -1)
            answers = pipeline.execute()
        return dict(zip(QUEUES, map(_front, answers), strict=True))

    def close(self) -> None:
        """Let the connection go; the next call makes a new one."""
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None:
            try:
                connection.release()
            except (redis.RedisError, KombuError, OSError):
                return

    def _opened(self) -> Any:
        if self._channel is None:
            # Both default to None in kombu: a broker that is gone would be waited for without end. Retrying inside
            # the client would publish twice, and would switch pipelining off without a word.
            self._connection = self._app.connection_for_write(
                connect_timeout=self._timeout,
                transport_options={
                    "socket_timeout": self._timeout,
                    "socket_connect_timeout": self._timeout,
                    "socket_keepalive": True,
                    "retry_on_timeout": False,
                    "retry_on_error": None,
                },
            )
            channel = self._connection.channel()
            if not getattr(channel, "supports_batch_publish", False):
                raise ConfigurationError(
                    "celeryconfig: this broker can't publish in one pipeline. Use a redis:// broker_url, "
                    "without retry options in broker_transport_options."
                )
            self._channel = channel
        return self._channel

    def _client(self) -> redis.Redis:
        return redis.Redis(connection_pool=self._opened().pool)

    @contextmanager
    def _pipeline(self) -> Iterator[Any]:
        with self._client().pipeline(transaction=False) as pipeline:
            yield pipeline

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (redis.RedisError, KombuError, OSError) as error:
            self.close()
            raise BrokerError(redacted(error)) from None


def redacted(error: BaseException) -> str:
    """The error's kind and first line, without user and password of a URL in it, and what to do where that is known."""
    first = next(iter(str(error).splitlines()), "")
    shown = _CREDENTIALS.sub("://***@", first)[:200]
    advice = ". Run outbox-mail migrate" if getattr(error, "sqlstate", None) in _OTHER_SCHEMA else ""
    return f"{type(error).__name__}: {shown}{advice}"


def _text(value: Any) -> str | None:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _front(messages: Sequence[Any]) -> Front:
    times = [time for message in messages if (time := _published_at(message)) is not None]
    return Front(empty=not messages, published_at=min(times, default=None))


def _published_at(message: Any) -> datetime | None:
    """When a message was published; None for those of others, and for anything that is not a message."""
    try:
        timestamp = json.loads(message)["properties"]["timestamp"]
        if isinstance(timestamp, (int, float)) and math.isfinite(timestamp):
            return datetime.fromtimestamp(timestamp, UTC)
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, OSError, RecursionError):
        return None
    return None
