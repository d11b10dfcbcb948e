"""Finished rows go by their own ages, in small batches; nothing else ever does."""

from __future__ import annotations

from typing import Any

from outbox_mail.outbox.signals import Retained
from outbox_mail.outbox.status import Status

Keeper = Any


def test_sent_and_failed_rows_go_by_their_own_ages(keeper: Keeper) -> None:
    old = [keeper.insert(Status.SENT, 61), keeper.insert(Status.FAILED, 91)]
    young = {keeper.insert(Status.SENT, 59), keeper.insert(Status.FAILED, 61), keeper.insert(Status.FAILED, 89)}

    assert keeper.retain() == len(old)

    assert keeper.ids() == young
    assert keeper.said == [Retained("SENT", 1, archived=False), Retained("FAILED", 1, archived=False)]
