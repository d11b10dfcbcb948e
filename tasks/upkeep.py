"""Beat's jobs. Each may run twice at once, and may be missed: the next run catches up."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from psycopg import Connection

from outbox_mail.errors import DatabaseUnavailableError
from outbox_mail.mail.outbox import MAIL
from outbox_mail.mail.owned_files import sweep_orphans
from outbox_mail.mail.retention import retain_mail
from outbox_mail.names import REAP_TASK, RETAIN_TASK, SWEEP_TASK
from outbox_mail.outbox.reaper import run_reaper
from tasks import app, process

_log = logging.getLogger(__name__)


@app.task(name=REAP_TASK)
def reap() -> None:
    """Free the rows whose lease ran out."""
    settings = process.settings()
    with _connection(REAP_TASK) as connection:
        run_reaper(
            connection,
            MAIL,
            process.signals,
            lease_seconds=settings.lease_seconds,
            max_reaps=settings.max_reaps,
            batch_size=settings.reap_batch_size,
        )


@app.task(name=RETAIN_TASK)
def retain() -> None:
    """Remove finished rows that are old enough, and the owned files that no row names any more."""
    settings = process.settings()
    with _connection(RETAIN_TASK) as connection:
        retain_mail(
            connection,
            process.delivery().stores,
            process.signals,
            sent_days=settings.retention_sent_days,
            failed_days=settings.retention_failed_days,
            batch_size=settings.retention_batch_size,
            archive=settings.retention_mode == "archive",
            wait=process.leaving.wait,
        )


@app.task(name=SWEEP_TASK)
def sweep() -> None:
    """Record the owned files that no row ever named, for the next retention to remove."""
    with _connection(SWEEP_TASK) as connection:
        sweep_orphans(
            connection,
            process.delivery().stores,
            older_than_days=process.settings().retention_orphan_days,
            wait=process.leaving.wait,
        )


@contextmanager
def _connection(task: str) -> Iterator[Connection[Any]]:
    try:
        with process.delivery().database.connection() as connection:
            yield connection
    except DatabaseUnavailableError:
        _log.warning("upkeep_put_off", extra={"task": task})
