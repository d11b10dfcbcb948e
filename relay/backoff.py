"""How long to wait while the broker or the database is down."""

from __future__ import annotations

import random
from typing import Final

FIRST_SECONDS: Final = 0.2


class Backoff:
    """Doubles from 0.2 s up to ``ceiling_seconds``; at random between half and all of it, so that relays spread."""

    def __init__(self, ceiling_seconds: float) -> None:
        self._ceiling = ceiling_seconds
        self.failures = 0

    def next_seconds(self) -> float:
        """Count a failure and return the wait that follows it."""
        longest: float = min(self._ceiling, FIRST_SECONDS * 2 ** min(self.failures, 30))
        self.failures += 1
        return longest * random.uniform(0.5, 1)  # noqa: S311 - spreading, not secrecy

    def reset(self) -> None:
        """It works again."""
        self.failures = 0
