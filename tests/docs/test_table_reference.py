"""Every table and every column of the outbox is in the reference."""

from __future__ import annotations

import re
from pathlib import Path

from outbox_mail.mail.tables import email_messages, metadata


def test_every_column_is_documented(root: Path) -> None:
    page = (root / "docs/reference/table.md").read_text()
    section = page.partition("## `email_messages`")[2].partition("\n## ")[0]
    documented = {
        name
        for line in section.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`(\w+)`", line.split("|")[1])
    }
    assert documented == set(email_messages.columns.keys())


def test_every_table_is_documented(root: Path) -> None:
    page = (root / "docs/reference/table.md").read_text()
    assert [name for name in metadata.tables if f"`{name}`" not in page] == []
