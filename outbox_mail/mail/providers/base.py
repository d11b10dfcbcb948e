"""The contract between delivery and whatever carries mail away."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol
from uuid import UUID

from outbox_mail.errors import ErrorClass, ProviderError


class State(StrEnum):
    """What became of one address."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    """For good; never tried again."""
    DEFERRED = "deferred"
    """For now; only these addresses are tried again."""


@dataclass(frozen=True, slots=True)
class RecipientOutcome:
    """One address's outcome; ``code`` and ``text`` are the provider's own words (``550``, ``5.1.1 no such user``)."""

    state: State
    code: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class SendResult:
    """The provider took the request. ``outcomes`` has every envelope recipient.

    At least one address was accepted, or all were refused or deferred one by one.
    """

    outcomes: Mapping[str, RecipientOutcome]
    provider_message_id: str | None = None
    retry_after_seconds: float | None = None

    @classmethod
    def all_accepted(cls, recipients: Iterable[str], provider_message_id: str | None = None) -> SendResult:
        """Every recipient was accepted."""
        return cls(dict.fromkeys(recipients, RecipientOutcome(State.ACCEPTED)), provider_message_id)


@dataclass(frozen=True, slots=True)
class Composed:
    """A mail ready for the wire. The same row and template always give the same ``data`` and ``message_id``."""

    id: UUID
    """The row's id: the idempotency token for providers that take one."""
    message_id: str
    """With its angle brackets, as in the header."""
    envelope_sender: str
    """A bare address, domain in ASCII; may be empty for the null sender."""
    recipients: Sequence[str]
    """Bare envelope addresses still to be served, domains in ASCII, without duplicates."""
    data: bytes = field(repr=False)
    """RFC 5322 bytes with CRLF line ends, no Bcc, not dot-stuffed."""
    needs_smtputf8: bool = False
    """Some address that is shown in the head or still to be served has a non-ASCII local part."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """A total bound on one send, on the monotonic clock."""

    at: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """A deadline ``seconds`` from now."""
        return cls(time.monotonic() + seconds)

    def remaining_seconds(self) -> float:
        """What is left, never below zero."""
        return max(0.0, self.at - time.monotonic())

    def require(self, doing: str) -> float:
        """What is left; raises a transient ``ProviderError`` coded ``timeout`` when nothing is."""
        left = self.at - time.monotonic()
        if left <= 0:
            raise ProviderError("timeout", f"the send deadline passed {doing}", error_class=ErrorClass.TRANSIENT)
        return left


class Provider(Protocol):
    """Carries one composed mail away. One instance serves all threads of a process; made after any fork."""

    name: str
    """Short and stable (``smtp``): stored on the row and used as a metric label."""

    def send(self, mail: Composed, deadline: Deadline) -> SendResult:
        """Hand ``mail`` over and return each recipient's outcome before ``deadline``.

        Raises ``ProviderError`` with its class when the message as a whole was not accepted (permanent, transient,
        operator) or when nobody knows (unknown: the connection broke after everything was sent).
        """
        ...

    def close(self) -> None:
        """Let go of kept connections. Safe to call twice; ``send`` may be called again afterwards."""
        ...
