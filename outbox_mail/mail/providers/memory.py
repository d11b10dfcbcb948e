"""Mails kept in a list, for tests of applications."""

from __future__ import annotations

import threading
from collections import deque

from outbox_mail.errors import ProviderError
from outbox_mail.mail.providers.base import Composed, Deadline, RecipientOutcome, SendResult, State
from outbox_mail.mail.providers.url import Query, refuse_host, refuse_path, split


class MemoryProvider:
    """Accepts everything and keeps it in ``sent``, unless told otherwise. Safe for many threads."""

    name = "memory"

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sent: list[Composed] = []
        self._errors: deque[ProviderError] = deque()
        self._outcomes: dict[str, RecipientOutcome] = {}

    @classmethod
    def from_url(cls, url: str) -> MemoryProvider:
        """From ``memory:``; each call makes an empty one."""
        parts = split(url)
        refuse_host(parts)
        refuse_path(parts)
        Query(parts).refuse_the_rest()
        return cls()

    @property
    def sent(self) -> list[Composed]:
        """What was accepted for at least one address, in order. Its ``recipients`` are all that were asked for."""
        with self._lock:
            return list(self._sent)

    def fail_next(self, *errors: ProviderError) -> None:
        """Let the next sends raise these, one each."""
        with self._lock:
            self._errors.extend(errors)

    def answer(self, address: str, outcome: RecipientOutcome) -> None:
        """From now on, ``outcome`` is what becomes of ``address``."""
        with self._lock:
            self._outcomes[address] = outcome

    def clear(self) -> None:
        """Forget all that was sent and told."""
        with self._lock:
            self._sent.clear()
            self._errors.clear()
            self._outcomes.clear()

    def send(self, mail: Composed, deadline: Deadline) -> SendResult:
        """Keep ``mail``, or raise what ``fail_next`` was given."""
        deadline.require("before the mail was kept")
        with self._lock:
            if self._errors:
                raise self._errors.popleft()
            accepted = RecipientOutcome(State.ACCEPTED)
            outcomes = {address: self._outcomes.get(address, accepted) for address in mail.recipients}
            if not any(outcome.state is State.ACCEPTED for outcome in outcomes.values()):
                return SendResult(outcomes)
            self._sent.append(mail)
            return SendResult(outcomes, provider_message_id=str(len(self._sent)))

    def close(self) -> None:
        """Nothing to let go of; what was sent stays."""
