"""Plain Celery values, from the settings in the environment; no logic."""

from __future__ import annotations

from outbox_mail import names
from outbox_mail.settings import load_settings

_settings = load_settings()

broker_url = _settings.broker_url.get_secret_value()
task_serializer = "json"
accept_content = ["json"]
task_queues = {name: {"routing_key": name} for name in (*names.QUEUES.values(), names.UPKEEP_QUEUE)}
broker_transport_options = {"visibility_timeout": _settings.visibility_timeout_seconds}
