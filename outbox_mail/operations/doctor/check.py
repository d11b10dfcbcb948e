"""One finding of the doctor."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARNING = "warning"
    """Mail flows; somebody should look."""
    PROBLEM = "problem"
    """Mail waits or will be lost sight of, until somebody acts."""


@dataclass(frozen=True, slots=True)
class Check:
    """What was looked at, what was found, and what to do; ``advice`` is empty when all is well."""

    name: str
    level: Level
    found: str
    advice: str = ""


def ok(name: str, found: str) -> Check:
    """As it should be."""
    return Check(name, Level.OK, found)


def warning(name: str, found: str, advice: str) -> Check:
    """Worth a look."""
    return Check(name, Level.WARNING, found, advice)


def problem(name: str, found: str, advice: str) -> Check:
    """Not as it should be."""
    return Check(name, Level.PROBLEM, found, advice)


def duration(seconds: float) -> str:
    """A duration for people."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    for unit, size in (("days", 172_800), ("h", 7_200)):
        if seconds >= size:
            return f"{seconds / (86_400 if unit == 'days' else 3_600):.1f} {unit}"
    return f"{seconds / 60:.0f} min"
