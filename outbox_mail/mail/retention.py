"""Mail's retention: finished rows by their own ages, and the attachment files that go with their last row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from psycopg import Connection

from outbox_mail.mail.attachments.stores import Stores
from outbox_mail.mail.outbox import MAIL
from outbox_mail.mail.owned_files import GRACE_SECONDS, RECORD_WITH_ROWS, remove_files
from outbox_mail.outbox.retention import MAX_SECONDS, PAUSE_SECONDS, retain, sleep
from outbox_mail.outbox.signals import Signals
from outbox_mail.outbox.status import Status


def retain_mail(
    connection: Connection[Any],
    stores: Stores,
    signals: Signals,
    *,
    sent_days: float,
    failed_days: float,
    batch_size: int,
    archive: bool,
    grace_seconds: float = GRACE_SECONDS,
    pause_seconds: float = PAUSE_SECONDS,
    max_seconds: float = MAX_SECONDS,
    wait: Callable[[float], bool] = sleep,
) -> int:
    """Remove SENT rows, then FAILED rows, then the owned files that no row names any more; returns how many rows.

    Each of the three may take ``max_seconds``. Owned files are recorded by the statement that removes their row, also
    when the row is archived, and removed by a run that comes ``grace_seconds`` later. What is guaranteed is said by
    ``retain`` and ``remove_files``, which also say what is emitted; the database's errors pass through.
    """
    ages = {Status.SENT: sent_days, Status.FAILED: failed_days}
    rows = sum(
        retain(
            connection,
            MAIL,
            signals,
            status=status,
            older_than_days=days,
            batch_size=batch_size,
            archive=archive,
            pause_seconds=pause_seconds,
            max_seconds=max_seconds,
            wait=wait,
            also=RECORD_WITH_ROWS,
        )
        for status, days in ages.items()
    )
    remove_files(connection, stores, signals, grace_seconds=grace_seconds, max_seconds=max_seconds, wait=wait)
    return rows
