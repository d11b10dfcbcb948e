"""Looks at every part that mail needs on its way, and says what to do about what is not as it should be."""

from outbox_mail.operations.doctor.check import Check, Level
from outbox_mail.operations.doctor.examine import examine

__all__ = ["Check", "Level", "examine"]
