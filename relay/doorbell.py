"""When to sleep, how long, and whether producers shall ring meanwhile.

NOTIFY takes a lock that all commits of the database share, so producers ring only while the relays are marked asleep.
On a quiet system they stay so, and each mail rings once. While there is plenty to do they are awake: nobody rings, and
the relay looks again by itself.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from psycopg import Connection

from outbox_mail.outbox import relay_state
from relay.wakeup import listen

RINGS_WHEN_BUSY: Final = 5
"""After so many rings in a row that came while a round was under way, asking for them costs more than looking."""
LOOKS_WHEN_STUCK: Final = 20
"""After so many looks at a full window that nobody empties, the relay sleeps until new mail or the next poll."""


class Look(Protocol):
    """What the doorbell wants to know of a round."""

    @property
    def looked_at(self) -> int:
        """How many rows."""

    @property
    def more(self) -> bool:
        """Whether others are surely waiting."""

    @property
    def crowded(self) -> bool:
        """Whether some priority's window is full."""


class Doorbell:
    """The state of one relay's sleep. ``listens``: False where LISTEN is not available; polling is enough then."""

    def __init__(self, *, listens: bool, poll_seconds: float, busy_seconds: float) -> None:
        self._listens = listens
        self._poll_seconds = poll_seconds
        self._busy_seconds = busy_seconds
        self._asleep: bool | None = None
        self._rings = 0
        self._stuck_looks = 0
        self._timed_out = False

    def opened(self, connection: Connection[Any]) -> None:
        """A new session: listen on it, or keep producers from ringing for nobody."""
        self._asleep = None
        if self._listens:
            listen(connection)
        else:
            relay_state.mark_awake(connection)

    def bell(self, connection: Connection[Any]) -> Connection[Any] | None:
        """The session to wait on."""
        return connection if self._listens else None

    def before_waiting(self, connection: Connection[Any], look: Look) -> float:
        """How long to wait after a round; marks the relays asleep or awake where that changes. 0: look once more."""
        self._stuck_looks = self._stuck_looks + 1 if look.crowded and not look.looked_at else 0
        if look.more or (look.crowded and self._stuck_looks < LOOKS_WHEN_STUCK):
            self.silence(connection)
            return 0.0 if look.more else self._busy_seconds
        if not self._listens:
            return self._busy_seconds if look.looked_at else self._poll_seconds
        if self._asleep:
            return self._while_asleep(connection)
        if look.looked_at:
            return self._busy_seconds
        # In this order: mark, look once more, wait. A row that commits between look and wait rings; a transaction that
        # read the mark before it was set and commits after the look is found by the next poll.
        relay_state.mark_asleep(connection)
        self._asleep = True
        return 0.0

    def _while_asleep(self, connection: Connection[Any]) -> float:
        if self._rings >= RINGS_WHEN_BUSY:
            self.silence(connection)
            return self._busy_seconds
        if self._timed_out:
            # Another relay may have been killed while awake, or left.
            relay_state.mark_asleep(connection)
        return self._poll_seconds

    def silence(self, connection: Connection[Any]) -> None:
        """Keep producers from ringing: there is plenty to do, or nothing can be done."""
        if self._listens and self._asleep is not False:
            relay_state.mark_awake(connection)
            self._asleep = False
            self._rings = 0

    def waited(self, *, rung: bool, seconds: float) -> None:
        """What the wait brought, and how long it took."""
        self._timed_out = not rung
        self._rings = self._rings + 1 if rung and seconds < self._busy_seconds / 10 else 0
