"""The demo's verdict finds each way in which mail can go wrong."""

from __future__ import annotations

from collections import Counter
from uuid import UUID, uuid4

import pytest

from examples.demo.outcome import Row, judge, unfinished
from examples.demo.promise import End, Promise

SENT = Row("SENT", 0, None, None)
REFUSED = Row("FAILED", 1, "smtp_550", "5.1.1 no such user")


def verdict(
    promise: Promise, row: Row | None, accepted: int, *, allowed: int = 0, others: dict[UUID, int] | None = None
) -> list[str]:
    rows = {} if row is None else {promise.id: row}
    counts = Counter({promise.id: accepted} if accepted else {}) + Counter(others or {})
    outcome = judge([promise], rows, counts, copies_allowed=allowed)
    assert outcome.ok is not bool(outcome.problems)
    assert outcome.as_json()["ok"] is outcome.ok
    return outcome.problems


def sent(*, after_retry: bool = False) -> Promise:
    return Promise(uuid4(), "order confirmed", after_retry=after_retry)


def refused() -> Promise:
    return Promise(uuid4(), "refused", End.FAILED, "smtp_550")


def rolled_back() -> Promise:
    return Promise(uuid4(), "rolled back", End.NOWHERE)


def test_all_that_went_as_promised_is_in_order() -> None:
    promises = [sent(), sent(after_retry=True), refused(), rolled_back()]
    rows = {promises[0].id: SENT, promises[1].id: Row("SENT", 2, None, None), promises[2].id: REFUSED}
    outcome = judge(promises, rows, Counter([promises[0].id, promises[1].id]), copies_allowed=0)
    assert outcome.ok
    assert (outcome.sent, outcome.failed, outcome.rolled_back, outcome.accepted, outcome.copies) == (2, 1, 1, 2, 0)


@pytest.mark.parametrize(
    ("promise", "row", "accepted", "complaint"),
    [
        (sent(), None, 0, "row is gone"),
        (sent(), SENT, 0, "never took it"),
        (sent(), Row("PENDING", 0, None, None), 0, "is PENDING"),
        (sent(), Row("PENDING", 0, None, None), 1, "is PENDING"),
        (sent(), REFUSED, 0, "is FAILED (smtp_550"),
        (sent(after_retry=True), SENT, 1, "was not retried"),
        (refused(), SENT, 1, "is SENT"),
        (refused(), REFUSED, 1, "the SMTP server took it"),
        (refused(), Row("FAILED", 5, "timeout", "too late"), 0, "failed with timeout"),
        (refused(), Row("FAILED", 1, "smtp_550", ""), 0, "failed with smtp_550"),
        (rolled_back(), SENT, 0, "rolled back"),
        (rolled_back(), None, 1, "rolled back"),
    ],
)
def test_each_broken_promise_is_named(promise: Promise, row: Row | None, accepted: int, complaint: str) -> None:
    problems = verdict(promise, row, accepted)
    assert len(problems) == 1
    assert complaint in problems[0]
    assert str(promise.id) in problems[0]


def test_a_second_copy_is_wrong_unless_a_killed_worker_explains_it() -> None:
    assert verdict(sent(), SENT, 2) == ["1 mails went out a second time; 0 are allowed"]
    assert verdict(sent(), SENT, 2, allowed=1) == []


def test_a_mail_that_nobody_was_promised_is_wrong() -> None:
    stranger = uuid4()
    assert verdict(sent(), SENT, 1, others={stranger: 1}) == [f"{stranger}: was mailed, but nobody was promised it"]


def test_what_waits_or_is_being_sent_is_unfinished_and_what_was_rolled_back_is_not() -> None:
    promises = [sent(), sent(), sent(), refused(), rolled_back()]
    rows = {
        promises[0].id: SENT,
        promises[1].id: Row("SENDING", 0, None, None),
        promises[3].id: REFUSED,
    }
    assert unfinished(promises, rows) == 2
