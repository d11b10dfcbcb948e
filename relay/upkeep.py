"""What the relay does beside publishing, each in its own time and in bounded batches."""

from __future__ import annotations

import random
import time
from datetime import timedelta
from typing import Any, Final

from psycopg import Connection

from outbox_mail.names import Priority
from outbox_mail.outbox import due, parked, processes, transitions
from outbox_mail.outbox.signals import Failed, Signals
from outbox_mail.outbox.transitions import Outbox
from relay.publisher import Publisher

EXPIRE_SECONDS: Final = 5.0
HOLDS_SECONDS: Final = 1.0
PROGRESS_SECONDS: Final = 3.0
STALE_MOST_SECONDS: Final = 30.0
KEYS_AT_ONCE: Final = 500
TURNS_REST: Final = 10
"""A look at the parked ordering keys is followed by this many times its own duration of not looking."""
# The times in a queue are whole seconds, and each is from before its message was pushed.
_MARGIN: Final = timedelta(seconds=5)


class Upkeep:
    """Keeps in mind what is to be done when. Times are on the monotonic clock.

    ``turns_seconds``: the shortest and longest pause between two looks at what waits for its turn.
    """

    def __init__(
        self,
        outbox: Outbox,
        signals: Signals,
        *,
        batch: int,
        republish_seconds: float,
        turns_seconds: tuple[float, float],
    ) -> None:
        self._outbox = outbox
        self._signals = signals
        self._batch = batch
        self._republish_seconds = republish_seconds
        self._turns_first, self._turns_most = turns_seconds
        self._turns_pause = self._turns_first
        self._turns_freed = 0
        self._next: dict[str, float] = {}
        self._name: str | None = None
        self._key: str | None = None
        self._turns_wait = True
        self.doing = "starting"
        self.published = 0

    def in_database(self, connection: Connection[Any]) -> None:
        """Report progress, end expired rows, free what no longer waits for a hold or its turn."""
        if self._is_time("progress", PROGRESS_SECONDS):
            self._report(connection)
        if self._is_time("expire", EXPIRE_SECONDS):
            self.expire(connection)
        if self._is_time("holds", HOLDS_SECONDS) and (
            parked.free_held(connection, self._outbox, limit=self._batch) == self._batch
        ):
            self._soon("holds")
        if self._turns_wait and self._is_time("turns", 0.0):
            self._free_turns(connection)

    def at_broker(self, connection: Connection[Any], publisher: Publisher) -> int:
        """Have published again what was lost on the way; returns how many rows. Nothing that waits in a queue is."""
        if not self._is_time("stale", min(STALE_MOST_SECONDS, max(0.2, self._republish_seconds / 5))):
            return 0
        seconds = self._republish_seconds * random.uniform(1, 1.2)  # noqa: S311 - so that relays and rounds spread
        stale = [p for p in Priority if due.has_stale(connection, self._outbox, p, seconds=seconds)]
        if not stale:
            return 0
        fronts = publisher.fronts()
        freed = 0
        for priority in stale:
            front = fronts[priority]
            if not front.empty and front.published_at is None:
                continue
            before = None
            if front.published_at is not None:
                before = front.published_at - _MARGIN
            count = due.free_stale(
                connection, self._outbox, priority, seconds=seconds, published_before=before, limit=self._batch
            )
            freed += count
            if count == self._batch:
                self._soon("stale")
        return freed

    def expire(self, connection: Connection[Any]) -> None:
        """End one batch of rows that are worthless by now; the next follows at once when there are more."""
        ended = transitions.expire(connection, self._outbox, limit=self._batch)
        for id_, kind, attempts in ended:
            self._signals.emit(Failed(id_, kind, "expired", attempts))
        if len(ended) == self._batch:
            self._soon("expire")

    def look_for_turns(self) -> None:
        """Rows may be parked until their turn: look for them until none is."""
        self._turns_wait = True

    def look_for_turns_soon(self) -> None:
        """Rows were parked just now; the one before them may be finished at any moment."""
        self._turns_wait = True
        self._turns_pause = self._turns_first

    def seconds_to_turns(self) -> float:
        """How long until the ordering keys are to be looked at."""
        return max(0.0, self._next.get("turns", 0.0) - time.monotonic()) if self._turns_wait else float("inf")

    def leave(self, connection: Connection[Any]) -> None:
        """Say good-bye."""
        if self._name is not None:
            processes.forget(connection, self._name)

    def _free_turns(self, connection: Connection[Any]) -> None:
        started = time.monotonic()
        turns = parked.free_turns(connection, self._outbox, keys=KEYS_AT_ONCE, after=self._key)
        if self._key is None and not turns.keys:
            self._turns_wait = False
        self._key = turns.last_key
        self._turns_freed += turns.freed
        if turns.freed:
            self._turns_pause = self._turns_first
        if self._key is None:
            # Waiting twice as long after each pass that found nothing: a turn is found late by no more than it took.
            if not self._turns_freed:
                self._turns_pause = min(self._turns_most, 2 * self._turns_pause)
            self._turns_freed = 0
        now = time.monotonic()
        self._next["turns"] = now + max(self._turns_pause, TURNS_REST * (now - started))

    def _report(self, connection: Connection[Any]) -> None:
        self._name = processes.report_progress(
            connection, "relay", self.doing, {"published": self.published}, started=self._name is None
        )

    def _is_time(self, what: str, every_seconds: float) -> bool:
        now = time.monotonic()
        if now < self._next.get(what, 0.0):
            return False
        self._next[what] = now + every_seconds
        return True

    def _soon(self, what: str) -> None:
        self._next[what] = 0.0
