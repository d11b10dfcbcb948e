"""The numbers are right, and estimated where they are large."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import psycopg
import pytest

from outbox_mail.operations.overview import overview
from outbox_mail.operations.processes import health
from outbox_mail.outbox import census
from outbox_mail.outbox.processes import report_progress

Connection = psycopg.Connection[Any]
Make = Callable[..., UUID]


def test_every_row_is_counted_once_where_it_stands(connection: Connection, make: Make) -> None:
    make()
    for status, number in (("SENDING", 2), ("SENT", 3), ("FAILED", 4)):
        for _ in range(number):
            make(status)
    states = {
        "scheduled": "due_at = now() + interval '1 hour'",
        "out": "published_at = now()",
        "countdown": "published_at = now(), due_at = now() + interval '1 minute'",
        "in_line": "hold_id = 0",
        "held": "hold_id = 7",
    }
    for change in states.values():
        connection.execute(f"UPDATE email_messages SET {change} WHERE id = %s", [make()])

    counts = overview(connection).counts

    assert {name: count.rows for name, count in counts.pending().items()} == dict.fromkeys(census.PENDING_STATES, 1)
    assert {status.value: count.rows for status, count in counts.by_status().items()} == {
        "PENDING": 6,
        "SENDING": 2,
        "SENT": 3,
        "FAILED": 4,
    }
    assert not any(count.estimated for count in counts.by_status().values())


def test_an_empty_outbox_has_no_ages(connection: Connection) -> None:
    found = overview(connection)

    assert found.oldest_due_pending_age_seconds is None
    assert found.oldest_sending_age_seconds is None
    assert found.failed_by_code == {}


def test_the_oldest_due_is_found_whether_out_or_not_and_held_ones_do_not_count(
    connection: Connection, make: Make
) -> None:
    waiting = {"due": make(priority=3), "out": make(), "held": make()}
    connection.execute("UPDATE email_messages SET due_at = now() - interval '100 s' WHERE id = %s", [waiting["due"]])
    connection.execute(
        "UPDATE email_messages SET due_at = now() - interval '200 s', published_at = now() WHERE id = %s",
        [waiting["out"]],
    )
    connection.execute(
        "UPDATE email_messages SET due_at = now() - interval '300 s', hold_id = 1 WHERE id = %s", [waiting["held"]]
    )

    assert overview(connection).oldest_due_pending_age_seconds == pytest.approx(200, abs=5)
    connection.execute("UPDATE email_messages SET hold_id = 1, published_at = NULL WHERE id = %s", [waiting["out"]])
    assert overview(connection).oldest_due_pending_age_seconds == pytest.approx(100, abs=5)


def test_a_due_time_of_minus_infinity_is_survived(connection: Connection, make: Make) -> None:
    make()
    connection.execute("UPDATE email_messages SET due_at = '-infinity'")

    age = overview(connection).oldest_due_pending_age_seconds
    assert age is not None
    assert age > 10**9


def test_large_numbers_are_estimated_from_the_index(
    connection: Connection, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(census, "EXACT_UP_TO", 10)
    for _ in range(30):
        make("SENT")
    make("FAILED")
    for _ in range(15):
        make()
    connection.execute("VACUUM ANALYZE email_messages")

    counts = overview(connection).counts

    assert (counts.sent.rows, counts.sent.estimated) == (30, True)
    assert (counts.due.rows, counts.due.estimated) == (15, True)
    assert (counts.failed.rows, counts.failed.estimated) == (1, False)


def test_an_estimate_without_statistics_is_at_least_what_was_counted(
    connection: Connection, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(census, "EXACT_UP_TO", 10)
    for _ in range(30):
        make("SENT")

    counts = overview(connection).counts

    assert (counts.sent.rows, counts.sent.estimated) == (11, True)


def test_failures_are_grouped_by_code_the_most_frequent_first(connection: Connection, make: Make) -> None:
    for code in ("expired", "smtp_550", "smtp_550"):
        make("FAILED", code=code)

    assert list(overview(connection).failed_by_code.items()) == [("smtp_550", 2), ("expired", 1)]


def test_health_is_progress_and_not_presence(connection: Connection) -> None:
    report_progress(connection, "relay", "idle", started=True)
    assert health(connection, stale_seconds=60).healthy(["relay"])
    assert not health(connection, stale_seconds=60).healthy()

    connection.execute("UPDATE outbox_processes SET progress_at = now() - interval '2 minutes'")

    found = health(connection, stale_seconds=60)
    assert not found.healthy(["relay"])
    assert len(found.stale["relay"]) == 1
