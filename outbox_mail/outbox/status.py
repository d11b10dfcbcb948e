"""The four statuses and every legal transition between them, as data.

Everything else that speaks of statuses is derived from this module: the UPDATEs in ``transitions.py``, the CHECK
constraints in ``columns.py``, the matrix test, and the diagram in the documentation.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Status(StrEnum):
    """Where a message stands. A worker moves PENDING on; nobody but a person moves FAILED on; SENT is final."""

    PENDING = "PENDING"
    """Waiting: for its time, the relay, a worker, its turn, or the end of a hold. A claim moves it on."""
    SENDING = "SENDING"
    """Claimed by one worker under a lease. The worker moves it on, or the reaper does when the lease ran out."""
    SENT = "SENT"
    """The provider accepted it; this says nothing about delivery. Only retention touches it."""
    FAILED = "FAILED"
    """Given up, with an error code: the dead-letter queue. A person requeues it; retention removes it."""


@dataclass(frozen=True, slots=True)
class Transition:
    """One legal move. ``needs_claim``: only the holder of the row's current claim may make it.

    ``counts_attempt``: the message has used up one of its attempts.
    """

    name: str
    sources: frozenset[Status]
    target: Status
    needs_claim: bool = False
    counts_attempt: bool = False


def _move(
    name: str, *sources: Status, to: Status, needs_claim: bool = False, counts_attempt: bool = False
) -> Transition:
    return Transition(name, frozenset(sources), to, needs_claim, counts_attempt)


_PENDING, _SENDING, _SENT, _FAILED = Status.PENDING, Status.SENDING, Status.SENT, Status.FAILED

CLAIM: Final = _move("claim", _PENDING, to=_SENDING)
# Acceptance always wins: the mail did go out, whoever holds the row now, and even if it was given up meanwhile.
ACCEPT: Final = _move("accept", _SENDING, _PENDING, _FAILED, to=_SENT)
RETRY: Final = _move("retry", _SENDING, to=_PENDING, needs_claim=True, counts_attempt=True)
FAIL: Final = _move("fail", _SENDING, to=_FAILED, needs_claim=True, counts_attempt=True)
# Given back by its holder through no fault of the message: a hold, an operator's fault, a shutdown.
RELEASE: Final = _move("release", _SENDING, to=_PENDING, needs_claim=True)
REAP: Final = _move("reap", _SENDING, to=_PENDING)
# The lease ran out and another try is forbidden: at-most-once, or a message that kills its workers.
GIVE_UP: Final = _move("give_up", _SENDING, to=_FAILED)
EXPIRE: Final = _move("expire", _PENDING, to=_FAILED)
CANCEL: Final = _move("cancel", _PENDING, to=_FAILED)
REQUEUE: Final = _move("requeue", _FAILED, to=_PENDING)

TRANSITIONS: Final = (CLAIM, ACCEPT, RETRY, FAIL, RELEASE, REAP, GIVE_UP, EXPIRE, CANCEL, REQUEUE)

RETAINED: Final = frozenset({_SENT, _FAILED})
"""The only statuses that retention may remove."""
