"""What a sink offers, whom it refuses, and where it misbehaves."""

from __future__ import annotations

import ssl
import threading
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

EXTENSIONS: Final = ("PIPELINING", "SIZE 52428800", "8BITMIME", "SMTPUTF8", "ENHANCEDSTATUSCODES")


class Step(StrEnum):
    """Where a fault can strike: at a command, or at a moment in a mail's way."""

    CONNECT = "connect"
    """Instead of the greeting."""
    EHLO = "ehlo"
    HELO = "helo"
    STARTTLS = "starttls"
    AUTH = "auth"
    MAIL = "mail"
    RCPT = "rcpt"
    DATA = "data"
    BODY = "body"
    """When the first bytes of the body are in; the rest is not read."""
    END = "end"
    """The whole mail is in, nothing is written down yet."""
    ACCEPTED = "accepted"
    """The mail is written down, the final reply is not yet sent."""
    REPLIED = "replied"
    """The final reply is out."""
    RSET = "rset"
    NOOP = "noop"
    QUIT = "quit"


class Way(StrEnum):
    """What happens instead of the ordinary answer."""

    REPLY = "reply"
    """``reply`` is sent; the command has no other effect."""
    REPLY_AND_CLOSE = "reply_and_close"
    CLOSE = "close"
    SILENCE = "silence"
    """Nothing more is said; the connection stays open."""
    DRIP = "drip"
    """``reply`` is sent one byte at a time, ``seconds`` apart."""
    DELAY = "delay"
    """``seconds`` pass, then all goes on as usual."""


@dataclass
class Fault:
    """One misbehaviour: at ``at``, after it was passed ``skip`` times, for ``times`` times (None: always)."""

    at: Step
    way: Way
    reply: bytes = b""
    seconds: float = 0.0
    times: int | None = 1
    skip: int = 0

    def strikes(self) -> bool:
        """Count one pass; whether the fault shows this time."""
        if self.skip:
            self.skip -= 1
            return False
        if self.times is None:
            return True
        self.times -= 1
        return self.times >= 0


@dataclass
class Behaviour:
    """May be changed while the sink runs; what is under way is not affected.

    Recipients whose local part begins with ``refused`` get 550, with ``deferred`` always 451, with ``greylisted`` 451
    for the first ``greylist_times`` times each; ``replies`` says otherwise for whole addresses.
    """

    extensions: tuple[str, ...] = EXTENSIONS
    """EHLO keywords besides STARTTLS and AUTH; empty: EHLO is not known, only HELO."""
    latency_seconds: float = 0.0
    """Before the final reply of each mail."""
    round_trip_seconds: float = 0.0
    """Before each answer, or group of answers."""
    greylist_times: int = 2
    greylist_hint_seconds: int = 1
    replies: dict[str, bytes] = field(default_factory=dict)
    tls: ssl.SSLContext | None = None
    """Offers STARTTLS, or speaks TLS from the first byte if ``implicit_tls``."""
    implicit_tls: bool = False
    credentials: tuple[str, str] | None = None
    """Offers AUTH, and takes mail only after it."""
    mechanisms: tuple[str, ...] = ("PLAIN", "LOGIN")
    faults: list[Fault] = field(default_factory=list)
    _greylisted: Counter[str] = field(default_factory=Counter, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def fault_at(self, step: Step) -> Fault | None:
        """The fault that strikes at this pass of ``step``, if any."""
        if not self.faults:
            return None
        with self._lock:
            return next((fault for fault in self.faults if fault.at is step and fault.strikes()), None)

    def reply_to(self, recipient: str) -> bytes:
        """The answer to RCPT."""
        if recipient in self.replies:
            return self.replies[recipient]
        local = recipient.partition("@")[0].lower()
        if local.startswith("refused"):
            return b"550 5.1.1 <" + recipient.encode() + b">: no such user here\r\n"
        if local.startswith("deferred"):
            return b"451 4.3.0 not now\r\n"
        if local.startswith("greylisted"):
            with self._lock:
                self._greylisted[recipient] += 1
                if self._greylisted[recipient] <= self.greylist_times:
                    return b"451 4.7.1 greylisted, try again in %d seconds\r\n" % self.greylist_hint_seconds
        return b"250 2.1.5 OK\r\n"

    def offers(self, keyword: str) -> bool:
        """Whether an extension is offered."""
        return any(extension.split(" ")[0] == keyword for extension in self.extensions)
