"""Countdowns that a process has out are bounded in number and in length."""

from __future__ import annotations

import time
from typing import Any

import pytest


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The class; importing it reads the settings."""
    monkeypatch.setenv("OUTBOX_MAIL_DATABASE_URL", "postgresql://x@127.0.0.1:1/x")
    from tasks.countdowns import Countdowns

    return Countdowns


def test_a_wait_beyond_the_ceiling_is_the_tables(make: Any) -> None:
    countdowns = make(ceiling_seconds=900, outstanding=10)

    assert countdowns.reserve(900)
    assert not countdowns.reserve(900.1)


def test_no_more_than_the_bound_are_out_and_each_makes_room_when_it_is_over(make: Any) -> None:
    countdowns = make(ceiling_seconds=900, outstanding=2)
    assert countdowns.reserve(0.05)
    assert countdowns.reserve(600)
    assert not countdowns.reserve(1)

    until = time.monotonic() + 5
    while not countdowns.reserve(600):
        assert time.monotonic() < until
        time.sleep(0.01)
    assert not countdowns.reserve(1)
