"""Waiting: until the doorbell rings, the time is over, or the process is told to stop."""

from __future__ import annotations

import os
import select
from typing import Any

from psycopg import Connection

from outbox_mail.names import DOORBELL_CHANNEL


def listen(connection: Connection[Any]) -> None:
    """Have this session woken by the doorbell."""
    connection.execute(f"LISTEN {DOORBELL_CHANNEL}")


class Wakeup:
    """What the relay waits on. ``stop`` may be called from a signal handler or another thread."""

    def __init__(self) -> None:
        self.stopping = False
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)

    def stop(self) -> None:
        """End the wait that is under way and every later one."""
        self.stopping = True
        try:
            os.write(self._write, b"\0")
        except BlockingIOError:
            # So many bytes are waiting that the wait ends anyway.
            return

    def wait(self, seconds: float, bell: Connection[Any] | None = None) -> bool:
        """Wait for at most ``seconds``. True: ``bell``'s session was rung, also before this call.

        Raises ``psycopg.OperationalError`` when that session is gone.
        """
        if bell is not None and _rung(bell):
            return True
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        if bell is not None:
            poll.register(bell.fileno(), select.POLLIN)
        # The pipe is never emptied: once told to stop, no wait lasts.
        poll.poll(max(0.0, seconds) * 1000)
        return bell is not None and not self.stopping and _rung(bell)

    def close(self) -> None:
        """Give the pipe back."""
        os.close(self._read)
        os.close(self._write)


def _rung(bell: Connection[Any]) -> bool:
    return sum(1 for _ in bell.notifies(timeout=0)) > 0
