"""Each transition reads only the rows it is for, with fresh statistics and with old ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest

from outbox_mail.mail.outbox import MAIL
from outbox_mail.outbox import transitions

Connection = psycopg.Connection[Any]


def scans(plan: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    if "Relation Name" in plan or "Index Name" in plan:
        yield plan["Node Type"], plan.get("Relation Name", ""), plan.get("Index Name", "")
    for child in plan.get("Plans", ()):
        yield from scans(child)


def explained(connection: Connection, sql: str, parameters: dict[str, Any]) -> set[tuple[str, str]]:
    row = connection.execute(f"EXPLAIN (FORMAT JSON) {sql}".encode(), parameters).fetchone()
    assert row is not None
    found = list(scans(row[0][0]["Plan"]))
    assert not [scan for scan in found if scan[0] == "Seq Scan" and scan[1] == "email_messages"], found
    return {(relation, index) for _, relation, index in found}


BY_ID = {"id": UUID(int=1), "claims": 1, "provider": "memory", "at_most_once": [], "delay_seconds": 1.0}
FAILURE = transitions.Failure("transient", "x", "y").parameters()
PARAMETERS = BY_ID | FAILURE | {"countdown": False, "provider_message_id": None, "reason": "r"}


@pytest.mark.parametrize(
    "name", ["_claim_sql", "_withdraw_sql", "_accept_sql", "_retry_sql", "_fail_sql", "_release_sql"]
)
def test_what_is_done_to_one_row_goes_by_its_primary_key(filled: Connection, name: str) -> None:
    used = explained(filled, getattr(transitions, name)(MAIL), PARAMETERS)

    indexes = {index for relation, index in used if index.startswith("email_messages")}
    assert "email_messages_pkey" in indexes
    assert indexes <= {"email_messages_pkey", "email_messages_turn"}


def test_the_reaper_reads_the_index_of_what_is_claimed(filled: Connection) -> None:
    used = explained(
        filled,
        transitions._reap_sql(MAIL),
        {"lease_seconds": 60, "max_reaps": 5, "limit": 500, "message": "m"},
    )

    assert any(index == "email_messages_locked" for _, index in used)


def test_expiring_reads_the_index_of_what_expires(filled: Connection) -> None:
    used = explained(filled, transitions._expire_sql(MAIL, "true"), {"limit": 500, "id": None})

    assert any(index == "email_messages_expiring" for _, index in used)
