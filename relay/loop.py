"""The relay's loop: due rows → broker."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import psycopg
from psycopg import Connection

from outbox_mail.outbox import due, relay_state
from outbox_mail.outbox.signals import BrokerLost, DatabaseUnavailable, Published, PublishFailed, Signals
from outbox_mail.outbox.transitions import Outbox
from outbox_mail.settings import Settings
from relay import window
from relay.backoff import Backoff
from relay.database import Sessions
from relay.doorbell import Doorbell
from relay.publisher import BrokerError, Publisher, redacted
from relay.repair import is_whole, repair
from relay.upkeep import Upkeep
from relay.wakeup import Wakeup

BROKER_CHECK_SECONDS: Final = 1.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Round:
    """What one round found. ``more``: others are surely waiting; ``crowded``: some priority's window is full."""

    looked_at: int
    published: int
    more: bool
    crowded: bool


class Relay:
    """One relay, for one thread. Session and broker connection are made anew by themselves after an error.

    ``provider`` is the one whose holds park rows here already; None leaves them to the workers.
    """

    def __init__(
        self,
        settings: Settings,
        outbox: Outbox,
        sessions: Sessions,
        publisher: Publisher,
        signals: Signals,
        *,
        provider: str | None = None,
    ) -> None:
        self._settings, self._outbox, self._signals, self._provider = settings, outbox, signals, provider
        self._sessions, self._publisher = sessions, publisher
        self._wakeup = Wakeup()
        self._doorbell = Doorbell(
            listens=settings.relay_listen and not settings.transaction_pooler,
            # Each turn shows progress, so the longest sleep stays well below what counts as hung.
            poll_seconds=min(settings.relay_poll_seconds, settings.health_stale_seconds / 3),
            busy_seconds=settings.relay_busy_poll_seconds,
        )
        self._upkeep = Upkeep(
            outbox,
            signals,
            batch=settings.relay_batch_size,
            republish_seconds=settings.republish_seconds,
            turns_seconds=(settings.relay_busy_poll_seconds, settings.relay_poll_seconds),
        )
        self._database_backoff = Backoff(settings.relay_backoff_max_seconds)
        self._broker_backoff = Backoff(settings.relay_backoff_max_seconds)
        self._connection: Connection[Any] | None = None
        self._mark: str | None = None
        self._check_broker_at = 0.0
        self._freed = 0

    def stop(self) -> None:
        """Finish the round under way and leave. May be called from a signal handler or another thread."""
        self._wakeup.stop()

    def run(self) -> None:
        """Publish until told to stop. Neither a broker nor a database that is down ends it."""
        try:
            while not self._wakeup.stopping:
                try:
                    self._rest(self._turn())
                except BrokerError as error:
                    self._wakeup.wait(self._broker_down(error))
                except psycopg.Error as error:
                    self._wakeup.wait(self._database_down(error))
        finally:
            self._leave()

    def run_once(self) -> int:
        """Publish what is due as far as the window allows, and leave; returns how many ids went out.

        Raises ``BrokerError`` or ``psycopg.Error`` when broker or database is down.
        """
        published = 0
        try:
            more = True
            while more and not self._wakeup.stopping:
                round_ = self._turn()
                published, more = published + round_.published, round_.more
        finally:
            self._leave()
        return published

    def _turn(self) -> Round:
        connection = self._session()
        with self._sessions.limits(connection):
            self._upkeep.in_database(connection)
        self._check_broker(connection)
        with self._sessions.limits(connection):
            self._freed += self._upkeep.at_broker(connection, self._publisher)
        return self._round(connection)

    def _round(self, connection: Connection[Any]) -> Round:
        """Take due rows, mark them, publish their ids, commit: whatever fails before that publishes them again."""
        started = time.monotonic()
        settings = self._settings
        limit = window.limit(settings.relay_batch_size, self._broker_backoff.failures)
        with connection.transaction():
            self._sessions.limit(connection)
            out = due.count_out(connection, self._outbox, bound=settings.relay_window)
            room = window.rooms(settings.relay_window, out.counts, batch=settings.relay_batch_size, relays=out.relays)
            taken = due.take(connection, self._outbox, room, limit=limit, provider=self._provider)
            if taken.at is not None and taken.rows:
                self._publish(taken.rows, taken.at)
        if taken.rows:
            self._report(taken, time.monotonic() - started)
        if taken.expired:
            with self._sessions.limits(connection):
                self._upkeep.expire(connection)
        if taken.out_of_turn:
            self._upkeep.look_for_turns_soon()
        return Round(
            looked_at=taken.total,
            published=len(taken.rows),
            more=taken.total >= limit,
            crowded=any(taken.looked_at.get(priority, 0) >= places for priority, places in room.items()),
        )

    def _publish(self, rows: Sequence[due.DueRow], at: datetime) -> None:
        mark = self._publisher.publish(window.pack(rows, self._settings.relay_ids_per_task), at)
        if mark != self._mark:
            self._check_broker_at = 0.0
            raise BrokerError("the broker's mark changed while publishing")

    def _check_broker(self, connection: Connection[Any]) -> None:
        if time.monotonic() < self._check_broker_at and not self._broker_backoff.failures:
            return
        state = self._publisher.state()
        if not is_whole(state, self._mark):
            # Another relay has repaired it, or left the mark before this one started.
            self._mark = relay_state.broker_mark(connection)
        if not is_whole(state, self._mark):
            with self._sessions.limits(connection):
                freed, self._mark = repair(connection, self._outbox, self._publisher)
            if freed is not None:
                self._signals.emit(BrokerLost(freed))
        self._check_broker_at = time.monotonic() + BROKER_CHECK_SECONDS

    def _report(self, taken: due.Taken, seconds: float) -> None:
        count = len(taken.rows)
        republished, self._freed = min(self._freed, count), max(0, self._freed - count)
        self._upkeep.published += count
        self._signals.emit(Published(count, seconds, max(row.age_seconds for row in taken.rows), republished))

    def _rest(self, round_: Round) -> None:
        connection = self._session()
        self._broker_backoff.reset()
        self._database_backoff.reset()
        self._upkeep.doing = "publishing" if round_.published else "waiting for workers" if round_.crowded else "idle"
        seconds = min(self._doorbell.before_waiting(connection, round_), self._upkeep.seconds_to_turns())
        if seconds > 0:
            started = time.monotonic()
            rung = self._wakeup.wait(seconds, self._doorbell.bell(connection))
            self._doorbell.waited(rung=rung, seconds=time.monotonic() - started)
            if not rung:
                self._upkeep.look_for_turns()

    def _broker_down(self, error: BrokerError) -> float:
        seconds = self._broker_backoff.next_seconds()
        self._upkeep.doing = "waiting for the broker"
        self._signals.emit(PublishFailed(str(error), seconds))
        try:
            self._doorbell.silence(self._session())
        except psycopg.Error as also:
            return self._database_down(also)
        return seconds

    def _database_down(self, error: psycopg.Error) -> float:
        seconds = self._database_backoff.next_seconds()
        self._close()
        self._signals.emit(DatabaseUnavailable("relay", redacted(error), seconds))
        return seconds

    def _session(self) -> Connection[Any]:
        if self._connection is None or self._connection.closed:
            self._connection = self._sessions.open()
            self._doorbell.opened(self._connection)
        return self._connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _leave(self) -> None:
        if self._connection is not None and not self._connection.closed:
            try:
                self._upkeep.leave(self._connection)
                self._doorbell.silence(self._connection)
            except psycopg.Error as error:
                _log.warning("relay_left_without_a_word", extra={"reason": redacted(error)})
        self._close()
        self._publisher.close()
