"""Retention reads only what it removes, with fresh statistics and with old ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from outbox_mail.mail import owned_files
from outbox_mail.mail.outbox import MAIL
from outbox_mail.outbox import retention
from outbox_mail.outbox.columns import STATUS_STAMPS
from outbox_mail.outbox.status import RETAINED, Status

Connection = psycopg.Connection[Any]

BATCH = 100


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def ran(connection: Connection, sql: str, parameters: dict[str, Any]) -> list[dict[str, Any]]:
    """The nodes of the plan as it ran, each with the rows that it really read; none reads the whole table."""
    row = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}".encode(), parameters).fetchone()
    assert row is not None
    found = list(nodes(row[0][0]["Plan"]))
    assert not [node for node in found if node["Node Type"] == "Seq Scan" and node["Relation Name"] == MAIL.table]
    return found


@pytest.fixture
def with_files(filled: Connection) -> Connection:
    """One row in sixteen has a file of its own, and as many have a picture that they share."""
    filled.execute(
        """UPDATE email_messages SET attachments = jsonb_build_array(jsonb_build_object(
            'storage_ref', 'file:///s/' || CASE right(id::text, 1) WHEN '1' THEN 'logo' ELSE id::text END,
            'owned', true))
        WHERE right(id::text, 1) IN ('0', '1')"""
    )
    return filled


@pytest.mark.parametrize("archive", [False, True])
@pytest.mark.parametrize("status", sorted(RETAINED))
def test_a_batch_reads_as_many_rows_as_it_removes(with_files: Connection, status: Status, archive: bool) -> None:
    parameters = {"after": "-infinity", "older_than_seconds": 60, "limit": BATCH}
    sql = retention._remove_sql(MAIL, status, archive, owned_files.RECORD_WITH_ROWS)

    found = ran(with_files, sql, parameters)

    scans = [node for node in found if node.get("Relation Name") == MAIL.table and "Scan" in node["Node Type"]]
    indexes = {
        node["Index Name"] for node in found if "Index Name" in node and node["Index Name"].startswith(MAIL.table)
    }
    assert f"{MAIL.table}_{STATUS_STAMPS[status].removesuffix('_at')}" in indexes
    assert indexes <= {f"{MAIL.table}_sent", f"{MAIL.table}_failed", f"{MAIL.table}_pkey", f"{MAIL.table}_archive_pkey"}
    assert [node["Actual Rows"] for node in scans] == [BATCH, BATCH]
    assert sum(node.get("Rows Removed by Filter", 0) for node in found) == 0


def test_who_else_names_a_file_is_asked_of_its_index(with_files: Connection) -> None:
    # As in every session of the service.
    with_files.execute("SET enable_seqscan = off")
    for ref in ("file:///s/logo", "file:///s/gone"):
        found = ran(with_files, f"SELECT {owned_files._NAMED % '%(ref)s::text'}", {"ref": ref})

        assert {node["Index Name"] for node in found if "Index Name" in node} == {f"{MAIL.table}_attachments"}


def test_the_sweep_asks_of_each_file_by_the_index(with_files: Connection) -> None:
    refs = [f"file:///s/gone/{number}" for number in range(500)]

    found = ran(with_files, owned_files.RECORD_ORPHANS_SQL, {"refs": refs, "limit": 1000})

    scans = [node for node in found if "Scan" in node["Node Type"] and node.get("Index Name")]
    assert {node["Index Name"] for node in scans} == {f"{MAIL.table}_attachments"}
    assert with_files.execute("SELECT count(*) FROM email_files_to_remove").fetchone() == (500,)
