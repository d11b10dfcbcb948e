"""What people decide about messages, and that who and why stay with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from outbox_mail.errors import NotFoundError, RefusedError, UsageError
from outbox_mail.operations.actions import CANCEL, DISCARD, REQUEUE, Action, act, act_on_all, find
from outbox_mail.operations.filters import Filter
from outbox_mail.operations.messages import show
from outbox_mail.outbox.status import Status

Connection = psycopg.Connection[Any]
Make = Callable[..., UUID]


def test_a_failed_message_is_sent_again_and_says_who_wanted_it(connection: Connection, make: Make) -> None:
    id_ = make("FAILED")

    act(connection, REQUEUE, id_, by="ayse", reason="mailbox is back")

    row = show(connection, id_)
    assert (row["status"], row["attempt_count"], row["published_at"]) == ("PENDING", 0, None)
    assert row["error_message"] == "requeued by ayse: mailbox is back"


def test_a_cancelled_message_says_who_and_why(connection: Connection, make: Make) -> None:
    id_ = make()

    act(connection, CANCEL, id_, by="ayse", reason="order withdrawn")

    row = show(connection, id_)
    assert (row["status"], row["error_code"]) == ("FAILED", "cancelled")
    assert row["error_message"] == "cancelled by ayse: order withdrawn"


def test_a_discarded_message_stays_failed_keeps_its_cause_and_can_be_requeued(
    connection: Connection, make: Make
) -> None:
    id_ = make("FAILED")

    act(connection, DISCARD, id_, by="ayse", reason="a test address")

    row = show(connection, id_)
    assert (row["status"], row["error_code"]) == ("FAILED", "discarded")
    assert row["error_message"] == "discarded by ayse: a test address (was smtp_550: no such user)"
    with pytest.raises(RefusedError, match="FAILED discarded"):
        act(connection, DISCARD, id_, by="ayse", reason="again")
    act(connection, REQUEUE, id_, by="ayse", reason="after all")
    assert show(connection, id_)["status"] == "PENDING"


@pytest.mark.parametrize("status", list(Status))
@pytest.mark.parametrize("action", [REQUEUE, CANCEL, DISCARD], ids=lambda action: action.name)
def test_only_the_right_status_is_touched(connection: Connection, make: Make, action: Action, status: Status) -> None:
    id_ = make(str(status))
    before = show(connection, id_)
    if status is action.status:
        act(connection, action, id_, by="ayse", reason="r")
        assert show(connection, id_) != before
        return

    with pytest.raises(RefusedError, match=status.value):
        act(connection, action, id_, by="ayse", reason="r")
    assert show(connection, id_) == before


def test_a_message_that_is_not_there_is_not_found(connection: Connection) -> None:
    with pytest.raises(NotFoundError):
        act(connection, REQUEUE, uuid4(), by="ayse", reason="r")


@pytest.mark.parametrize(
    ("by", "reason"), [("", "r"), ("  ", "r"), ("a", ""), ("a", " \n"), ("a\0", "r"), ("a", "x" * 500)]
)
def test_without_a_name_and_a_reason_nothing_is_done(connection: Connection, make: Make, by: str, reason: str) -> None:
    id_ = make("FAILED")
    with pytest.raises(UsageError):
        act(connection, REQUEUE, id_, by=by, reason=reason)
    assert show(connection, id_)["status"] == "FAILED"


def test_a_filter_finds_the_oldest_first_and_no_more_than_asked(connection: Connection, make: Make) -> None:
    failed = [make("FAILED", template="T") for _ in range(4)]
    make("FAILED", template="OTHER")
    make("SENT", template="T")

    assert find(connection, REQUEUE, Filter(template="T"), limit=3) == failed[:3]
    with pytest.raises(UsageError, match="status"):
        find(connection, REQUEUE, Filter(status=Status.SENT), limit=3)


def test_what_was_discarded_is_not_discarded_again(connection: Connection, make: Make) -> None:
    first, second = make("FAILED"), make("FAILED")
    act(connection, DISCARD, first, by="ayse", reason="r")

    assert find(connection, DISCARD, Filter(template="ORDER"), limit=10) == [second]


def test_one_that_moved_on_meanwhile_is_left_as_it_is(connection: Connection, make: Make) -> None:
    failed, sent = make("FAILED"), make("SENT")

    assert act_on_all(connection, REQUEUE, [sent, failed], by="ayse", reason="r") == [failed]
    assert show(connection, sent)["status"] == "SENT"
