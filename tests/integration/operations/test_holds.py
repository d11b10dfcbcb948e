"""Pausing holds back what it covers, and resuming gives it all back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from outbox_mail.errors import NotFoundError, OutboxMailError, RefusedError, UsageError
from outbox_mail.mail.outbox import MAIL
from outbox_mail.operations import holds
from outbox_mail.operations.holds import Scope, list_holds, pause, resume
from outbox_mail.outbox import transitions

Connection = psycopg.Connection[Any]
Make = Callable[..., UUID]

TARGETS = [
    (Scope.ALL, ""),
    (Scope.TEMPLATE, "ORDER"),
    (Scope.PROVIDER, "smtp"),
    (Scope.TAG, "vip"),
    (Scope.ORDERING_KEY, "k"),
]


@pytest.mark.parametrize(("scope", "value"), TARGETS)
def test_what_a_hold_covers_is_parked_and_goes_after_resume(
    connection: Connection, make: Make, scope: Scope, value: str
) -> None:
    id_ = make(tags=("vip",), ordering_key="k")
    made = pause(connection, scope, value, by="ayse", reason="provider's night")
    assert transitions.claim(connection, MAIL, id_, provider="smtp") is None
    assert transitions.withdraw(connection, MAIL, id_, provider="smtp") == "held"
    assert [hold.id for hold in list_holds(connection)] == [made.id]

    assert resume(connection, scope, value) == 1

    assert list_holds(connection) == []
    assert transitions.claim(connection, MAIL, id_, provider="smtp") is not None


def test_what_it_does_not_cover_goes_on(connection: Connection, make: Make) -> None:
    pause(connection, Scope.TEMPLATE, "OTHER", by="ayse", reason="r")

    assert transitions.claim(connection, MAIL, make(), provider="smtp") is not None


def test_a_hold_with_an_end_lifts_itself(connection: Connection, make: Make) -> None:
    hold = pause(connection, Scope.ALL, by="ayse", reason="r", until=timedelta(hours=1))
    assert hold.active
    assert hold.until is not None
    assert timedelta(minutes=59) < hold.until - hold.created_at <= timedelta(hours=1)

    connection.execute("UPDATE outbox_holds SET until = now() - interval '1 second'")

    assert transitions.claim(connection, MAIL, make(), provider="smtp") is not None
    assert not list_holds(connection)[0].active


def test_the_same_is_not_paused_twice_but_again_after_its_end(connection: Connection) -> None:
    pause(connection, Scope.TAG, "vip", by="ayse", reason="r")
    with pytest.raises(RefusedError, match="paused already"):
        pause(connection, Scope.TAG, "vip", by="fatma", reason="r")
    connection.execute("UPDATE outbox_holds SET until = now()")

    again = pause(connection, Scope.TAG, "vip", by="fatma", reason="r2")

    assert (again.held_by, again.reason, again.until) == ("fatma", "r2", None)


def test_what_is_not_paused_can_not_be_resumed(connection: Connection) -> None:
    with pytest.raises(NotFoundError, match="tag 'vip'"):
        resume(connection, Scope.TAG, "vip")


@pytest.mark.parametrize(
    ("scope", "value"), [(Scope.ALL, "x"), (Scope.TAG, ""), (Scope.TAG, "a\0"), (Scope.TAG, "x" * 2000)]
)
def test_a_target_that_can_not_be_is_refused(connection: Connection, scope: Scope, value: str) -> None:
    with pytest.raises(UsageError, match="value"):
        pause(connection, scope, value, by="ayse", reason="r")


def test_rows_are_freed_in_batches(connection: Connection, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holds, "FREE_BATCH", 2)
    hold = pause(connection, Scope.ALL, by="ayse", reason="r")
    for _ in range(5):
        make()
    connection.execute("UPDATE email_messages SET hold_id = %s", [hold.id])

    assert resume(connection, Scope.ALL) == 5


def test_a_row_that_somebody_keeps_locked_keeps_the_hold_s_record_and_resume_goes_on_later(
    connection: Connection, database_url: str, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holds, "_LOCKED_ROWS_SECONDS", 0.2)
    hold = pause(connection, Scope.ALL, by="ayse", reason="r")
    locked, free = make(), make()
    connection.execute("UPDATE email_messages SET hold_id = %s", [hold.id])
    with psycopg.connect(database_url) as other:
        other.execute("SELECT FROM email_messages WHERE id = %s FOR UPDATE", [locked])
        with pytest.raises(OutboxMailError, match="1 messages were freed"):
            resume(connection, Scope.ALL)
        assert transitions.claim(connection, MAIL, free, provider="smtp") is not None

    assert resume(connection, Scope.ALL) == 1
    assert list_holds(connection) == []


def test_two_who_resume_at_once_free_each_row_once(connection: Connection, database_url: str, make: Make) -> None:
    hold = pause(connection, Scope.ALL, by="ayse", reason="r")
    for _ in range(50):
        make()
    connection.execute("UPDATE email_messages SET hold_id = %s", [hold.id])
    freed: list[int] = []

    def go() -> None:
        with psycopg.connect(database_url, autocommit=True) as other:
            try:
                freed.append(resume(other, Scope.ALL))
            except NotFoundError:
                freed.append(0)

    threads = [threading.Thread(target=go) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert sum(freed) == 50
    assert list_holds(connection) == []
