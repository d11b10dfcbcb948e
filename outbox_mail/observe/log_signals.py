"""One log record for each signal, at the level at which somebody wants to see it."""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from outbox_mail.outbox import signals
from outbox_mail.outbox.signals import Signal

LEVELS: Final[dict[type[Signal], int]] = {
    signals.Published: logging.DEBUG,
    signals.PublishFailed: logging.WARNING,
    signals.BrokerLost: logging.WARNING,
    signals.DatabaseUnavailable: logging.WARNING,
    signals.Claimed: logging.DEBUG,
    signals.Withdrawn: logging.DEBUG,
    signals.Accepted: logging.INFO,
    signals.AcceptedAgain: logging.WARNING,
    signals.Retried: logging.INFO,
    signals.Released: logging.WARNING,
    signals.Failed: logging.ERROR,
    signals.ClaimLost: logging.WARNING,
    signals.Reaped: logging.WARNING,
    signals.Retained: logging.INFO,
    signals.FilesRemoved: logging.INFO,
}

# Attributes that every record has already.
_RENAMED: Final = {"process": "process_kind"}


def event_name(signal: type[Signal]) -> str:
    """``PublishFailed`` is logged as ``publish_failed``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", signal.__name__).lower()


class LogSignals:
    """A subscriber of ``Signals`` that writes to ``logger``. A signal that tells of nothing is not logged."""

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self._logger = logger or logging.getLogger("outbox_mail")

    def __call__(self, signal: Signal) -> None:
        """Log it."""
        kind = type(signal)
        level = _level(signal)
        if level is None or not self._logger.isEnabledFor(level):
            return
        extra = {
            _RENAMED.get(field.name, field.name): _plain(getattr(signal, field.name))
            for field in dataclasses.fields(signal)
        }
        self._logger.log(level, event_name(kind), extra=extra)


def _level(signal: Signal) -> int | None:
    if check := _EMPTY.get(type(signal)):
        level = check(signal)
        if level is None:
            return None
        return level
    return LEVELS.get(type(signal), logging.INFO)


def _plain(value: object) -> object:
    if isinstance(value, UUID):
        return str(value)
    return round(value, 6) if isinstance(value, float) else value


_EMPTY: Final[dict[type[Signal], Callable[[Any], int | None]]] = {
    signals.Reaped: lambda s: LEVELS[signals.Reaped] if s.released or s.given_up else None,
    signals.Retained: lambda s: LEVELS[signals.Retained] if s.count else None,
    signals.FilesRemoved: lambda s: (
        logging.WARNING if s.failed else LEVELS[signals.FilesRemoved] if s.removed else None
    ),
}
