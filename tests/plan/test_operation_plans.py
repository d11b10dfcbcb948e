"""What people ask reads no more of the table than it must, with fresh statistics and with old ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import Cursor

from outbox_mail.mail.outbox import MAIL
from outbox_mail.operations import holds
from outbox_mail.operations.actions import CANCEL, REQUEUE, find
from outbox_mail.operations.filters import Filter
from outbox_mail.operations.messages import list_messages
from outbox_mail.operations.overview import overview
from outbox_mail.outbox.census import count
from outbox_mail.outbox.status import Status

Connection = psycopg.Connection[Any]


class Explaining:
    """Everything that is asked on the connection, with the scans of its plan."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.scans: list[tuple[str, str, str]] = []


@pytest.fixture
def explained(filled: Connection, monkeypatch: pytest.MonkeyPatch) -> Iterator[Explaining]:
    """Explains every SELECT and UPDATE before it is run."""
    seen = Explaining()
    execute = Cursor.execute

    def explaining(self: Cursor[Any], query: Any, params: Any = None, **options: Any) -> Any:
        if str(query).lstrip().startswith(("SELECT", "UPDATE")) and MAIL.table in str(query):
            seen.asked.append(str(query))
            with self.connection.cursor(row_factory=psycopg.rows.tuple_row) as cursor:
                (plan,) = execute(cursor, f"EXPLAIN (FORMAT JSON) {query}".encode(), params).fetchall()
            seen.scans += scans(plan[0][0]["Plan"])
        return execute(self, query, params, **options)

    monkeypatch.setattr(Cursor, "execute", explaining)
    yield seen
    assert seen.asked
    read_whole = [scan for scan in seen.scans if scan[1] == MAIL.table and scan[0] == "Seq Scan"]
    assert read_whole == []


def scans(plan: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    if "Relation Name" in plan or "Index Name" in plan:
        yield plan["Node Type"], plan.get("Relation Name", ""), plan.get("Index Name", "")
    for child in plan.get("Plans", ()):
        yield from scans(child)


@pytest.mark.parametrize("status", list(Status))
def test_a_list_by_status_reads_indexes_only(filled: Connection, explained: Explaining, status: Status) -> None:
    first = list_messages(filled, Filter(status=status), limit=20)
    assert first.messages
    if first.next is not None:
        list_messages(filled, Filter(status=status), limit=20, after=first.next)


def test_a_list_by_entity_reads_its_index(filled: Connection, explained: Explaining) -> None:
    list_messages(filled, Filter(entity=("order", "42")))

    assert {index for _, _, index in explained.scans if index} == {"email_messages_entity"}


def test_a_list_without_conditions_reads_the_newest_ids(filled: Connection, explained: Explaining) -> None:
    list_messages(filled)

    assert {index for _, _, index in explained.scans if index} == {"email_messages_pkey"}


def test_what_is_to_be_requeued_or_cancelled_is_found_by_indexes(filled: Connection, explained: Explaining) -> None:
    assert find(filled, REQUEUE, Filter(error_code="smtp_550"), limit=10)
    assert find(filled, CANCEL, Filter(template="T"), limit=10)


def test_freeing_what_a_hold_parked_reads_its_index(filled: Connection, explained: Explaining) -> None:
    holds.free(filled, 7)

    assert "email_messages_held" in {index for _, _, index in explained.scans}


def test_the_overview_reads_indexes_only(filled: Connection, explained: Explaining) -> None:
    overview(filled)


def test_counting_stops_where_estimating_begins(filled: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outbox_mail.outbox.census.EXACT_UP_TO", 100)
    counts = count(filled, MAIL)

    assert counts.sent.estimated
    assert counts.sent.rows >= 101
