"""Beat's jobs. Both may run twice at once, and may be missed: the next run catches up."""

from __future__ import annotations

from outbox_mail.mail.outbox import MAIL
from outbox_mail.names import REAP_TASK
from outbox_mail.outbox import transitions
from tasks import app, process


@app.task(name=REAP_TASK)
def reap() -> None:
    """Free the rows whose lease ran out."""
    settings = process.settings()
    with process.delivery().database.connection() as connection:
        transitions.reap(connection, MAIL, lease_seconds=settings.lease_seconds, max_reaps=5, limit=500)
