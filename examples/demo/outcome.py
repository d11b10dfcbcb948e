"""Compares what the shop was promised with the table and with what the SMTP server took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from examples.demo.promise import End, Promise


class Row(NamedTuple):
    """A message as the table has it."""

    status: str
    attempt_count: int
    error_code: str | None
    error_message: str | None

    @property
    def final(self) -> bool:
        """Whether nothing more happens to it by itself."""
        return self.status in {"SENT", "FAILED"}


@dataclass
class SceneOutcome:
    """All mails of one scene."""

    scene: str
    expected: str
    asked: int = 0
    as_it_should_be: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    retried: int = 0
    reasons: set[str] = field(default_factory=set)


@dataclass
class Outcome:
    """The verdict. ``ok`` when nothing was lost, doubled or sent by mistake, and every failure has its true reason.

    ``copies`` are mails that the SMTP server took a second time. At-least-once allows them in one case only: a worker
    that was killed after the server took a mail and before SENT was recorded; ``copies_allowed`` is how many mails
    such workers can have had in hand.
    """

    scenes: list[SceneOutcome]
    sent: int
    failed: int
    rolled_back: int
    accepted: int
    copies: int
    copies_allowed: int
    problems: list[str]

    @property
    def ok(self) -> bool:
        """Whether everything is as it should be."""
        return not self.problems

    def as_json(self) -> dict[str, Any]:
        """The counts and ``ok``."""
        return {
            "ok": self.ok,
            "messages": self.sent + self.failed,
            "sent": self.sent,
            "failed": self.failed,
            "rolled_back": self.rolled_back,
            "accepted_by_server": self.accepted,
            "copies": self.copies,
            "copies_allowed": self.copies_allowed,
            "scenes": {
                scene.scene: {"asked": scene.asked, "as_it_should_be": scene.as_it_should_be, "retried": scene.retried}
                for scene in self.scenes
            },
            "problems": self.problems,
        }


def unfinished(promises: Iterable[Promise], rows: Mapping[UUID, Row]) -> int:
    """How many of the promised mails still wait or are being sent."""
    return sum(
        promise.end is not End.NOWHERE and not ((row := rows.get(promise.id)) and row.final) for promise in promises
    )


def judge(
    promises: Iterable[Promise], rows: Mapping[UUID, Row], accepted: Counter[UUID], *, copies_allowed: int
) -> Outcome:
    """Compare. ``accepted`` counts, by message, the mails of this run that the SMTP server took."""
    scenes: dict[str, SceneOutcome] = {}
    problems: list[str] = []
    known = set()
    for promise in promises:
        known.add(promise.id)
        scene = scenes.setdefault(promise.scene, SceneOutcome(promise.scene, _expected(promise)))
        row = rows.get(promise.id)
        scene.asked += 1
        scene.ended[row.status if row else End.NOWHERE] += 1
        if row and row.attempt_count and promise.end is End.SENT:
            scene.retried += 1
        if row and row.error_code and promise.end is End.FAILED:
            scene.reasons.add(f"{row.error_code}: {row.error_message}")
        if problem := _problem(promise, row, accepted[promise.id]):
            problems.append(f"{promise.scene}, {promise.id}: {problem}")
        else:
            scene.as_it_should_be += 1
    problems += [f"{id_}: was mailed, but nobody was promised it" for id_ in accepted if id_ not in known]
    copies = sum(count - 1 for count in accepted.values() if count > 1)
    if copies > copies_allowed:
        problems.append(f"{copies} mails went out a second time; {copies_allowed} are allowed")
    ended = Counter(rows[id_].status for id_ in known if id_ in rows)
    return Outcome(
        scenes=list(scenes.values()),
        sent=ended["SENT"],
        failed=ended["FAILED"],
        rolled_back=sum(scene.asked for scene in scenes.values() if scene.expected == End.NOWHERE),
        accepted=accepted.total(),
        copies=copies,
        copies_allowed=copies_allowed,
        problems=problems,
    )


def _expected(promise: Promise) -> str:
    if promise.error_code:
        return f"{promise.end} {promise.error_code}"
    return f"{promise.end} after a retry" if promise.after_retry else str(promise.end)


def _problem(promise: Promise, row: Row | None, accepted: int) -> str | None:
    """What is wrong; copies are counted as a whole, not here."""
    if promise.end is End.NOWHERE:
        return "was rolled back, yet it is in the table or was mailed" if row or accepted else None
    if row is None:
        return "the committed row is gone"
    reason = f"{row.error_code}: {row.error_message}"
    mismatches = {
        f"is {row.status} ({reason}) instead of {promise.end}": row.status != promise.end,
        "is SENT, but the SMTP server never took it": promise.end is End.SENT and not accepted,
        "was not retried": promise.after_retry and not row.attempt_count,
        "is FAILED, but the SMTP server took it": promise.end is End.FAILED and accepted > 0,
        f"failed with {reason} instead of {promise.error_code}": promise.error_code is not None
        and (row.error_code != promise.error_code or not row.error_message),
    }
    return next((problem for problem, found in mismatches.items() if found), None)
