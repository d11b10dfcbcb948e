"""How much one render may cost. Worker threads can't be interrupted, so the render itself counts what it does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from jinja2.exceptions import TemplateRuntimeError
from jinja2.runtime import Macro, Undefined
from jinja2.utils import Cycler, Joiner, Namespace
from markupsafe import Markup

_LOOK_AT_THE_CLOCK_EVERY: Final = 2000
_SLOW: Final = 100
_SCALAR_COST: Final = 8
_SCALARS: Final = frozenset({int, float, bool, type(None)})


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one render.

    With these, each single operation is bounded (nothing larger than ``output_chars`` is ever made), and their number
    and sum are.
    """

    output_chars: int = 1_000_000
    """Largest subject, body, or value that a template makes on its way."""
    work: int = 10_000_000
    """Characters written or made, values put into lists, steps of loops, calls: one unit each."""
    cpu_seconds: float = 2.0
    """Processor time of the thread, not wall time: a worker that was stopped or starved must not fail its message."""
    source_bytes: int = 256_000
    """Largest template file."""
    nodes: int = 20_000
    """Names, operators, calls, tags, … of one file: compiling takes some kilobytes of memory for each."""
    items: int = 10_000
    """Longest ``range``, and the like."""


class LimitError(TemplateRuntimeError):
    """A render went beyond its bounds."""


class Budget:
    """What is left of one render. Costs are taken by ``Meter``."""

    __slots__ = ("check_at", "cpu_at", "left")

    def __init__(self, limits: Limits) -> None:
        self.left = limits.work
        self.check_at = max(0, limits.work - _LOOK_AT_THE_CLOCK_EVERY)
        self.cpu_at = time.thread_time() + limits.cpu_seconds

    def check(self) -> None:
        """Raise when work or time has run out; else look again after some more work."""
        if self.left < 0:
            raise LimitError("it does too much work: a loop without end, or far too much output")
        if time.thread_time() > self.cpu_at:
            raise LimitError("it takes too long: a loop without end, or far too much output")
        self.check_at = max(0, self.left - _LOOK_AT_THE_CLOCK_EVERY)


class Meter:
    """Takes costs from the budget of the render that runs in this thread."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._local = threading.local()
        self.tick, self.slow = self._make_ticks()

    def start(self) -> None:
        """Begin a render in this thread."""
        self._local.budget = Budget(self.limits)

    def _make_ticks(self) -> tuple[Callable[..., bool], Callable[[], bool]]:
        local = self._local

        # Closures: they run for every step of every loop.
        def tick(cost: int = 1) -> bool:
            budget = local.budget
            budget.left -= cost
            if budget.left < budget.check_at:
                budget.check()
            return True

        # For what may take milliseconds once (comparing two long lists): the clock is looked at sooner.
        def slow() -> bool:
            budget = local.budget
            budget.left -= 1
            budget.check_at += _SLOW
            if budget.left < budget.check_at:
                budget.check()
            return True

        return tick, slow

    def counting(self, otherwise: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """A function that takes the cost of text that is about to be written, and hands what is no text on."""
        local = self._local

        # A closure: it runs for every value that a template shows.
        def shown(value: Any) -> Any:
            kind = type(value)
            budget = local.budget
            if kind is str or kind is Markup:
                budget.left -= len(value)
            else:
                budget.left -= _SCALAR_COST
                value = otherwise(value)
            if budget.left < budget.check_at:
                budget.check()
            return value

        return shown

    def fits(self, size: int) -> None:
        """Raise when something of ``size`` is about to be made, and that is too much; take its cost."""
        if size > self.limits.output_chars:
            raise LimitError(f"it makes a value larger than {self.limits.output_chars} characters")
        self.tick(size)

    def weigh(self, value: Any) -> None:
        """Take the cost of everything in ``value``; raise when it is too large.

        A list may hold another many times over, so that a few lines of template make one that would take years to
        write or compare: what counts is the size when written out.
        """
        most = self.limits.output_chars
        total = 0
        rest = [value]
        while rest:
            item = rest.pop()
            kind = type(item)
            if kind is str or kind is Markup:
                total += len(item) + 1
            elif kind is dict:
                total += 2 * len(item) + 1
                rest.extend(item)
                rest.extend(item.values())
            elif isinstance(item, (list, tuple)):
                total += len(item) + 1
                rest.extend(item)
            else:
                if kind not in _SCALARS:
                    self._require_opaque(item)
                total += _SCALAR_COST
            if total > most:
                raise LimitError(f"it makes a value larger than {most} characters")
        self.tick(total)

    @staticmethod
    def _require_opaque(item: Any) -> None:
        if isinstance(item, Undefined):
            str(item)  # raises the error of a missing parameter
        # Each of them shows as a few fixed characters, whatever it holds.
        if not isinstance(item, (int, float, range, Macro, Namespace, Cycler, Joiner)):
            raise TemplateRuntimeError(f"a {type(item).__name__} is no data: its parentheses may be missing")

    def joined(self, parts: Iterable[str]) -> str:
        """The parts as one text, when that is not too large."""
        pieces = parts if isinstance(parts, list) else list(parts)
        self.fits(sum(map(len, pieces)))
        return "".join(pieces)
