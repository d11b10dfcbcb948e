"""How many Celery countdowns this process has out: bounded, so that waiting never fills a worker's memory."""

from __future__ import annotations

import heapq
import threading
import time


class Countdowns:
    """Counts the waits that were handed to the broker and are not over yet.

    ``ceiling_seconds`` keeps each below the broker's visibility timeout; beyond it, or with ``outstanding`` waits out,
    the table alone carries a wait.
    """

    def __init__(self, *, ceiling_seconds: float, outstanding: int) -> None:
        self._ceiling_seconds = ceiling_seconds
        self._outstanding = outstanding
        self._ends: list[float] = []
        self._lock = threading.Lock()

    def reserve(self, delay_seconds: float) -> bool:
        """Whether a wait of ``delay_seconds`` may go out; if so it counts from now on until it is over."""
        if delay_seconds > self._ceiling_seconds:
            return False
        now = time.monotonic()
        with self._lock:
            while self._ends and self._ends[0] <= now:
                heapq.heappop(self._ends)
            if len(self._ends) >= self._outstanding:
                return False
            heapq.heappush(self._ends, now + delay_seconds)
        return True
