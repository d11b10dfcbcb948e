"""Gauges of the table itself, asked when Prometheus asks. The relay serves them: one source for each outbox."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from psycopg import Connection

from outbox_mail.observe.readings import Reading, read

CACHE_SECONDS: Final = 5.0
TIMEOUT_SECONDS: Final = 2.0
UP: Final = "outbox_mail_table_up"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Gauge:
    """One gauge of the table."""

    name: str
    meaning: str
    labels: tuple[str, ...] = ()


GAUGES: Final = (
    Gauge(
        "outbox_mail_oldest_due_pending_age_seconds",
        "How long the oldest due PENDING message has waited; held ones don't count.",
    ),
    Gauge("outbox_mail_oldest_sending_age_seconds", "Age of the oldest claim."),
    Gauge("outbox_mail_messages", "Rows by status; an estimate beyond 100,000.", ("status",)),
    Gauge("outbox_mail_pending", "PENDING rows by what they wait for.", ("state",)),
    Gauge(
        "outbox_mail_hold_active",
        "Holds in force; maintenance: their reason begins with this word.",
        ("scope", "maintenance"),
    ),
    Gauge("outbox_mail_processes", "Processes that ever reported, by whether they make progress.", ("kind", "state")),
    Gauge(
        UP,
        "1: these gauges were read from the database just now; 0: it could not be asked, and the others are missing.",
    ),
)


class TableGauges(Collector):
    """Asks at most every ``cache_seconds``, for ``timeout_seconds`` at most a statement; many scrapes ask once.

    ``connect`` gives a psycopg connection in autocommit for the length of a ``with``; whatever it raises makes
    ``outbox_mail_table_up`` 0. ``stale_seconds``: a process without progress for longer counts as stale.
    """

    def __init__(
        self,
        connect: Callable[[], AbstractContextManager[Connection[Any]]],
        *,
        stale_seconds: float = 60.0,
        cache_seconds: float = CACHE_SECONDS,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self._connect = connect
        self._stale_seconds = stale_seconds
        self._cache_seconds = cache_seconds
        self._timeout_seconds = timeout_seconds
        self._lock = threading.Lock()
        self._read_at = float("-inf")
        self._last: Reading | None = None

    def describe(self) -> Iterable[Metric]:
        """Empty gauges, so that registering asks no database."""
        return [GaugeMetricFamily(gauge.name, gauge.meaning, labels=gauge.labels) for gauge in GAUGES]

    def collect(self) -> Iterator[Metric]:
        """The gauges, none but ``outbox_mail_table_up`` when the database can't be asked."""
        reading = self._reading()
        for gauge in GAUGES:
            family = GaugeMetricFamily(gauge.name, gauge.meaning, labels=gauge.labels)
            if gauge.name == UP:
                family.add_metric([], 0 if reading is None else 1)
            elif reading is None:
                continue
            else:
                for labels, value in reading[gauge.name].items():
                    family.add_metric(labels, value)
            yield family

    def _reading(self) -> Reading | None:
        with self._lock:
            if time.monotonic() - self._read_at >= self._cache_seconds:
                try:
                    with self._connect() as connection:
                        self._last = read(
                            connection, stale_seconds=self._stale_seconds, timeout_seconds=self._timeout_seconds
                        )
                except Exception as error:  # noqa: BLE001 - a scrape must be answered whatever the database does
                    _log.warning("table_gauges_not_read", extra={"error": type(error).__name__})
                    self._last = None
                self._read_at = time.monotonic()
            return self._last
