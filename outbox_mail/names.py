"""Names that relay and workers must agree on, and that neither may own."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Priority(IntEnum):
    """How urgent a message is. Lower numbers are published and delivered first; each has a queue of its own."""

    HIGH = 1
    """A person is waiting for it: codes, password resets."""
    NORMAL = 2
    BULK = 3
    """May wait behind everything else: reports, newsletters."""


QUEUES: Final = {
    Priority.HIGH: "mail.high",
    Priority.NORMAL: "mail.normal",
    Priority.BULK: "mail.bulk",
}
UPKEEP_QUEUE: Final = "outbox.upkeep"

DELIVER_TASK: Final = "outbox_mail.deliver"
REAP_TASK: Final = "outbox_mail.reap"
RETAIN_TASK: Final = "outbox_mail.retain"
SWEEP_TASK: Final = "outbox_mail.sweep"

DOORBELL_CHANNEL: Final = "outbox_mail_doorbell"
"""The NOTIFY channel that wakes a sleeping relay."""

BROKER_MARK_KEY: Final = "outbox_mail:broker_mark"
"""The Redis key whose loss shows that the broker lost its contents."""
