"""What the core says when something happened: frozen facts, sent to whoever subscribed.

Metrics, logs and traces subscribe; the core knows none of them, and a subscriber that fails never disturbs a delivery.
Signals carry ids and measurements, never addresses, parameters or bodies.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Signal:
    """Base of all signals."""


@dataclass(frozen=True, slots=True)
class Published(Signal):
    """The relay handed ids to the broker and marked them, in one round."""

    count: int
    seconds: float
    oldest_age_seconds: float
    """Since the row published first in this round became due: the relay's latency."""
    republished: int = 0


@dataclass(frozen=True, slots=True)
class PublishFailed(Signal):
    """The broker could not be reached; no row changed."""

    reason: str
    retry_in_seconds: float


@dataclass(frozen=True, slots=True)
class BrokerLost(Signal):
    """The broker's mark was gone or another: what was out is published again."""

    freed: int


@dataclass(frozen=True, slots=True)
class DatabaseUnavailable(Signal):
    """The database could not be reached or refused; the process waits and tries again."""

    process: str
    reason: str
    retry_in_seconds: float


@dataclass(frozen=True, slots=True)
class Claimed(Signal):
    """A worker won a row."""

    message_id: UUID
    template: str
    waited_seconds: float
    """Since the row became due."""


@dataclass(frozen=True, slots=True)
class Withdrawn(Signal):
    """A claim found nothing to do: ``reason`` is finished, taken, not_due, held, out_of_turn, expired or gone."""

    message_id: UUID
    reason: str


@dataclass(frozen=True, slots=True)
class Accepted(Signal):
    """The provider accepted the message and SENT is recorded."""

    message_id: UUID
    template: str
    provider: str
    send_seconds: float
    attempts: int
    """How many attempts failed before this one."""
    refused_recipients: int = 0


@dataclass(frozen=True, slots=True)
class AcceptedAgain(Signal):
    """The provider accepted a message that was SENT already: a duplicate went out."""

    message_id: UUID
    template: str
    provider: str


@dataclass(frozen=True, slots=True)
class Retried(Signal):
    """An attempt failed and the next is due in ``delay_seconds``."""

    message_id: UUID
    template: str
    error_code: str
    error_class: str
    attempts: int
    delay_seconds: float


@dataclass(frozen=True, slots=True)
class Released(Signal):
    """Given back without an attempt counted."""

    message_id: UUID
    template: str
    error_code: str
    delay_seconds: float


@dataclass(frozen=True, slots=True)
class Failed(Signal):
    """Ended FAILED: a new dead letter."""

    message_id: UUID
    template: str
    error_code: str
    attempts: int


@dataclass(frozen=True, slots=True)
class ClaimLost(Signal):
    """A holder came back late and its claim was no longer the row's: its report changed nothing."""

    message_id: UUID
    transition: str


@dataclass(frozen=True, slots=True)
class Reaped(Signal):
    """Leases had run out: rows went back to PENDING, or were given up."""

    released: int
    given_up: int


@dataclass(frozen=True, slots=True)
class Retained(Signal):
    """Finished rows older than their age were deleted or archived."""

    status: str
    count: int
    archived: bool


@dataclass(frozen=True, slots=True)
class FilesRemoved(Signal):
    """Owned attachment files went with their last user; ``failed`` are left for the next sweep."""

    removed: int
    failed: int


@dataclass(slots=True)
class Signals:
    """The process's subscribers. Subscribe at start-up, from the main thread; ``emit`` is safe from any thread."""

    subscribers: list[Callable[[Signal], None]] = field(default_factory=list)

    def subscribe(self, subscriber: Callable[[Signal], None]) -> None:
        """Call ``subscriber`` with every signal from now on, in the thread that emitted it; it must be quick."""
        self.subscribers.append(subscriber)

    def emit(self, signal: Signal) -> None:
        """Tell all subscribers. Never raises: a subscriber's error is logged and the next is called."""
        for subscriber in self.subscribers:
            try:
                subscriber(signal)
            except Exception:  # noqa: BLE001 - whatever a subscriber raises, the delivery goes on
                _log.exception("signal_subscriber_failed", extra={"signal": type(signal).__name__})
