"""The command, with a fresh migrated database."""

from __future__ import annotations

import pytest

from outbox_mail.testing.command import Command


@pytest.fixture
def run(database_url: str) -> Command:
    """``run("list", "--json")``, as the user ayse."""
    return Command(OUTBOX_MAIL_DATABASE_URL=database_url, USER="ayse")
