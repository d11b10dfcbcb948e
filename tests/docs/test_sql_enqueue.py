"""The SQL in the documentation runs, and a worker can claim what it wrote."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import psycopg
import pytest

from outbox_mail.mail.insert import insert_sql
from outbox_mail.mail.outbox import MAIL
from outbox_mail.outbox import transitions


def example(root: Path, name: str) -> str:
    page = (root / "docs/how-to/enqueue-from-sql.md").read_text()
    found = re.search(rf"<!-- tested: {name} -->\n```sql\n(.*?)\n```", page, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("name", ["plain", "options", "ordered"])
def test_a_row_written_by_sql_alone_can_be_claimed(connection: psycopg.Connection[Any], root: Path, name: str) -> None:
    connection.execute(example(root, name).encode())

    connection.execute("UPDATE email_messages SET due_at = now()")
    row = connection.execute("SELECT id FROM email_messages").fetchone()
    assert row is not None
    assert transitions.claim(connection, MAIL, row[0], provider="memory") is not None


def test_the_doorbell_by_sql_rings_while_the_relay_sleeps(connection: psycopg.Connection[Any], root: Path) -> None:
    connection.execute("INSERT INTO outbox_relay_state (asleep) VALUES (true)")
    connection.execute("LISTEN outbox_mail_doorbell")

    connection.execute(example(root, "doorbell").encode())

    assert len(list(connection.notifies(timeout=5, stop_after=1))) == 1


def test_the_lock_in_the_documentation_is_the_one_that_enqueue_takes(root: Path) -> None:
    documented = re.search(r"hashtextextended\('order-42', (\d+)\)", example(root, "ordered"))
    assert documented is not None
    assert f"hashtextextended(k.ordering_key, {documented[1]})" in insert_sql("%s", keyed=False, ordered=True)
