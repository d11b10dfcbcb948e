"""What a worker process holds: settings, signals and the parts of delivery, made when first needed in each process."""

from __future__ import annotations

import functools
import os
import threading
from typing import Any, Final

from celery import signals as celery_signals

from outbox_mail.compose_root import compose_delivery
from outbox_mail.errors import OutboxMailError
from outbox_mail.mail.delivery import Delivery
from outbox_mail.observe.logs import configure_logging
from outbox_mail.observe.start import observe
from outbox_mail.outbox.signals import Signals
from outbox_mail.settings import Settings, load_settings
from tasks import app
from tasks.countdowns import Countdowns
from tasks.progress import ProgressStep

signals: Final = Signals()
leaving: Final = threading.Event()
"""Set when the worker was told to leave: what is claimed is finished, nothing more is claimed."""

_lock: Final = threading.Lock()
_deliveries: Final[dict[int, Delivery]] = {}


@functools.cache
def settings() -> Settings:
    """The settings, read once."""
    return load_settings()


def delivery() -> Delivery:
    """This process's parts. A pool's child makes its own: a connection that is older than its process is shared."""
    pid = os.getpid()
    if pid not in _deliveries:
        with _lock:
            if pid not in _deliveries:
                countdowns = Countdowns(
                    ceiling_seconds=settings().countdown_ceiling_seconds,
                    outstanding=settings().countdowns_outstanding,
                )
                _deliveries[pid] = compose_delivery(
                    settings(), signals, process="worker", reserve_countdown=countdowns.reserve
                )
    return _deliveries[pid]


app.steps["consumer"].add(ProgressStep)


@celery_signals.setup_logging.connect
def _set_up_logging(**_: Any) -> None:
    # Connected, so that Celery leaves logging alone: one configuration, one format, no arguments in any record.
    configure_logging(settings().log_level, settings().log_format)


@celery_signals.worker_init.connect
def _start(**_: Any) -> None:
    """Refuse to start with settings that can't work; the parts themselves are made by whoever sends."""
    try:
        made = compose_delivery(settings(), signals, process="worker")
        made.database.close()
        made.provider.close()
    except OutboxMailError as error:
        raise SystemExit(f"tasks: {error}") from None
    observe(settings(), signals, port=settings().worker_metrics_port)


@celery_signals.worker_shutting_down.connect
def _leave(**_: Any) -> None:
    leaving.set()
    for made in _deliveries.values():
        made.database.stop()


@celery_signals.worker_shutdown.connect
@celery_signals.worker_process_shutdown.connect
def _close(**_: Any) -> None:
    made = _deliveries.pop(os.getpid(), None)
    if made is not None:
        made.provider.close()
        made.database.close()
