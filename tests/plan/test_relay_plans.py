"""What the relay asks reads only the rows it is for, with fresh statistics and with old ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from outbox_mail.mail.outbox import MAIL
from outbox_mail.names import Priority
from outbox_mail.outbox import due, parked
from relay.database import Sessions

Connection = psycopg.Connection[Any]
pytestmark = pytest.mark.parametrize("sessions", [False, True], indirect=True, ids=["session", "behind a pooler"])
PRIORITIES = [priority.value for priority in Priority]


@pytest.fixture
def sessions(request: pytest.FixtureRequest, database_url: str) -> Sessions:
    return Sessions(
        database_url, timeout_seconds=30, idle_in_transaction_seconds=30, pooler=getattr(request, "param", False)
    )


@pytest.fixture
def session(filled: Connection, sessions: Sessions) -> Iterator[Connection]:
    """A relay's session on the filled table, with rows held, behind others of their key, and out."""
    filled.execute(
        """INSERT INTO email_messages ("to", template, published_at, due_at, ordering_key, ordering_seq, hold_id)
            SELECT ARRAY['a@example.com'], 'T', CASE WHEN n % 2 = 0 THEN now() - n * interval '1 second' END,
                now() - n * interval '1 second', 'k' || n % 50, n, CASE WHEN n % 2 = 1 THEN n % 3 END
            FROM generate_series(1, 2000) n"""
    )
    with sessions.open() as connection, sessions.limits(connection):
        yield connection


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def plan_of(connection: Connection, sql: str, parameters: dict[str, Any]) -> list[dict[str, Any]]:
    row = connection.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}".encode(), parameters).fetchone()
    assert row is not None
    found = list(nodes(row[0][0]["Plan"]))
    assert [n for n in found if n["Node Type"] == "Seq Scan" and n["Relation Name"] == MAIL.table] == []
    return found


def indexes(plan: list[dict[str, Any]]) -> set[str]:
    return {node["Index Name"] for node in plan if node.get("Index Name", "").startswith(MAIL.table)}


def rows_read(plan: list[dict[str, Any]], index: str) -> float:
    read: float = sum(
        (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        for node in plan
        if node.get("Index Name") == index
    )
    return read


def take(limit: int = 20, places: int = 20) -> dict[str, Any]:
    return {"priorities": PRIORITIES, "places": [places] * 3, "limit": limit, "provider": None}


def test_taking_reads_as_many_due_rows_as_it_takes_and_in_order(session: Connection) -> None:
    plan = plan_of(session, due._take_sql(MAIL), take())

    assert indexes(plan) <= {"email_messages_due", "email_messages_turn", "email_messages_pkey"}
    assert rows_read(plan, "email_messages_due") <= 20 + len(PRIORITIES)
    assert not [node for node in plan if node["Node Type"] == "Sort" and node["Actual Rows"] > 50]


def test_counting_what_is_out_reads_its_index_alone_and_stops_at_the_bound(session: Connection) -> None:
    plan = plan_of(session, due._count_out_sql(MAIL), {"bound": 100, "priorities": PRIORITIES, "fresh_seconds": 60})

    assert indexes(plan) == {"email_messages_out"}
    assert rows_read(plan, "email_messages_out") <= 100


def test_freeing_held_rows_looks_once_at_each_hold(session: Connection) -> None:
    plan = plan_of(session, parked._free_held_sql(MAIL), {"limit": 10})

    assert indexes(plan) <= {"email_messages_held", "email_messages_pkey"}
    assert rows_read(plan, "email_messages_held") <= 10 + 6


def test_freeing_turns_looks_once_at_each_key(session: Connection) -> None:
    plan = plan_of(session, parked._free_turns_sql(MAIL), {"keys": 10, "after": ""})

    assert indexes(plan) <= {"email_messages_waiting_turn", "email_messages_turn", "email_messages_pkey"}
    assert rows_read(plan, "email_messages_waiting_turn") <= 10
    assert rows_read(plan, "email_messages_turn") <= 20


@pytest.mark.parametrize("call", ["has_stale", "free_stale", "free_out"])
def test_what_was_lost_is_found_by_the_index_of_what_is_out(session: Connection, call: str) -> None:
    asked: list[tuple[str, dict[str, Any]]] = []

    class Recorder:
        rowcount = 0

        def execute(self, sql: str, parameters: dict[str, Any]) -> Recorder:
            asked.append((sql, parameters))
            return self

        def fetchone(self) -> None:
            return None

    arguments: dict[str, dict[str, Any]] = {
        "has_stale": {"priority": Priority.NORMAL, "seconds": 300},
        "free_stale": {"priority": Priority.NORMAL, "seconds": 300, "published_before": None, "limit": 10},
        "free_out": {"limit": 10},
    }
    getattr(due, call)(Recorder(), MAIL, **arguments[call])
    plan = plan_of(session, *asked[0])

    assert indexes(plan) <= {"email_messages_out", "email_messages_pkey"}
    assert rows_read(plan, "email_messages_out") <= 1000
