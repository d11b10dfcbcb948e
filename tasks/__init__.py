"""The Celery application: ``celery -A tasks worker|beat|flower``. Thin wrappers around ``outbox_mail``."""

from __future__ import annotations

from celery import Celery

from outbox_mail.errors import ConfigurationError

try:
    import celeryconfig
except ConfigurationError as error:
    # Celery would print a traceback around it.
    raise SystemExit(f"tasks: {error}") from None

app = Celery("outbox_mail", include=["tasks.deliver", "tasks.upkeep", "tasks.process"])
app.config_from_object(celeryconfig)
