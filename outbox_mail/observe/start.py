"""One call for a process: logs, metrics, and where they go."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg import Connection

from outbox_mail.observe.log_signals import LogSignals
from outbox_mail.observe.logs import configure_logging
from outbox_mail.observe.metrics import Metrics
from outbox_mail.observe.server import MetricsServer, serve_metrics
from outbox_mail.observe.table import TableGauges
from outbox_mail.outbox.signals import Signals
from outbox_mail.settings import Settings

_CONNECT_SECONDS: Final = 2


def observe(settings: Settings, signals: Signals, *, port: int, table: bool = False) -> MetricsServer | None:
    """Configure logging, subscribe logs and metrics to ``signals``, and serve the metrics when ``port`` is not 0.

    ``table``: serve the gauges of the table, too; for the relay. Returns the running endpoint, None when there is none.
    Call it once a process, at its start; with a prefork pool in the parent, with PROMETHEUS_MULTIPROC_DIR set.
    """
    configure_logging(settings.log_level, settings.log_format)
    signals.subscribe(LogSignals())
    metrics = Metrics()
    signals.subscribe(metrics)
    if not port:
        return None
    if table:
        connect = connecting(settings.database_url.get_secret_value())
        metrics.add(TableGauges(connect, stale_seconds=settings.health_stale_seconds))
    return serve_metrics(metrics, settings.metrics_host, port)


def connecting(database_url: str) -> Callable[[], Any]:
    """Opens a connection for each look: it takes none from the pool that the mail needs, and outlives any outage."""

    @contextmanager
    def connect() -> Iterator[Connection[Any]]:
        with psycopg.connect(
            database_url,
            autocommit=True,
            prepare_threshold=None,
            connect_timeout=_CONNECT_SECONDS,
            application_name="outbox-mail metrics",
        ) as connection:
            yield connection

    return connect
