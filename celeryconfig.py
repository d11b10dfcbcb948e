"""Plain Celery values, from the settings in the environment; no logic.

The table is the truth and the broker only a hint, so Celery runs in its fastest mode: early acknowledgement, no
results, nothing that is meant to make tasks reliable.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from celery.schedules import crontab
from kombu.entity import Queue

from outbox_mail import names
from outbox_mail.settings import load_settings

_settings = load_settings()

broker_url = _settings.broker_url.get_secret_value()
broker_connection_retry_on_startup = True
broker_connection_max_retries = None
# A broker that refuses a command (its memory is full) is waited for like one that is away; else the worker would leave.
broker_channel_error_retry = True
broker_transport_options = {
    "visibility_timeout": _settings.visibility_timeout_seconds,
    # kombu's default is None: a broker that is gone would be waited for without end.
    "socket_timeout": _settings.broker_timeout_seconds,
    "socket_connect_timeout": _settings.broker_timeout_seconds,
    "socket_keepalive": True,
    "health_check_interval": 25,
    # Queues are emptied in the order in which they stand below.
    "queue_order_strategy": "priority",
}

task_queues = [Queue(name, routing_key=name) for name in (names.UPKEEP_QUEUE, *names.QUEUES.values())]
task_default_queue = names.UPKEEP_QUEUE
task_create_missing_queues = False

accept_content = ["json"]
task_serializer = "json"
task_acks_late = False
task_ignore_result = True
task_store_errors_even_if_ignored = False
# A countdown that can't be sent is the table's to carry; nobody waits for the broker.
task_publish_retry = False

worker_pool = "threads"
worker_concurrency = _settings.worker_concurrency
worker_prefetch_multiplier = 1
worker_hijack_root_logger = False
worker_send_task_events = False

enable_utc = True
timezone = "UTC"
beat_scheduler = "tasks.beat:Scheduler"
beat_schedule_filename = str(Path(tempfile.gettempdir()) / "outbox-mail-beat-schedule")
beat_schedule = {
    "reap": {
        "task": names.REAP_TASK,
        "schedule": _settings.reap_interval_seconds,
        # A run that was missed is not made up for: the next one catches up.
        "options": {"expires": _settings.reap_interval_seconds},
    },
    "retain": {
        "task": names.RETAIN_TASK,
        "schedule": _settings.retention_interval_seconds,
        "options": {"expires": _settings.retention_interval_seconds},
    },
    "sweep": {
        "task": names.SWEEP_TASK,
        # By the clock: an interval of a day would begin anew with each deployment.
        "schedule": crontab(hour=3, minute=17),
        "options": {"expires": 3600},
    },
}
