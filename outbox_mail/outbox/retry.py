"""When a failed attempt is tried again: a pure function of error class, attempts and policy."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from outbox_mail.errors import ErrorClass

DEFAULT_SCHEDULE_SECONDS: Final = (30.0, 120.0, 600.0, 1800.0)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how long after. The last entry of the schedule repeats when more attempts are allowed.

    ``jitter`` is the share by which a delay is lengthened at random, at most: 0.2 spreads 30 s over 30 to 36 s. Delays
    are never shortened, so that what a provider asked for is kept.
    """

    max_attempts: int = 5
    schedule_seconds: tuple[float, ...] = DEFAULT_SCHEDULE_SECONDS
    jitter: float = 0.2
    operator_delay_seconds: float = 60.0
    """How long a message waits that was given back because of an operator's fault."""
    max_retry_after_seconds: float = 3600.0
    """A provider's wish for a longer pause is cut to this."""

    def delay_seconds(
        self, failed_attempts: int, retry_after_seconds: float | None = None, *, rng: random.Random | None = None
    ) -> float:
        """How long to wait after the ``failed_attempts``-th failure (1 is the first).

        The provider's ``retry_after_seconds`` counts when it is longer than the schedule's entry.
        """
        index = min(max(failed_attempts, 1), len(self.schedule_seconds)) - 1
        base = self.schedule_seconds[index]
        if retry_after_seconds is not None and retry_after_seconds > 0:
            base = max(base, min(retry_after_seconds, self.max_retry_after_seconds))
        # Jitter spreads load; it needs no cryptographic randomness.
        return base * (1 + self.jitter * (rng or random).random())

    def ceiling_seconds(self) -> float:
        """The longest delay that ``delay_seconds`` can return."""
        return max(*self.schedule_seconds, self.max_retry_after_seconds) * (1 + self.jitter)

    def gives_up(
        self, error_class: ErrorClass, failed_attempts: int, *, at_most_once: bool, max_attempts: int | None = None
    ) -> bool:
        """Whether the message ends FAILED now, ``failed_attempts`` counting the one that has just failed."""
        if error_class is ErrorClass.PERMANENT:
            return True
        if error_class is ErrorClass.UNKNOWN and at_most_once:
            return True
        return failed_attempts >= (max_attempts or self.max_attempts)
