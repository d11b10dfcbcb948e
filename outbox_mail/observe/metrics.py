"""Counts what the core's signals say, for Prometheus."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, Final, cast

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from outbox_mail.observe import catalogue
from outbox_mail.observe.catalogue import Kind, Metric
from outbox_mail.outbox import signals
from outbox_mail.outbox.signals import Signal

MULTIPROCESS_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"
"""A folder in which the children of a prefork pool count together; to be set before the process starts, and empty."""

MAX_VALUES_PER_LABEL: Final = 200
MAX_LABEL_CHARS: Final = 100
OTHER: Final = "other"

_STOPPED: Final = {"taken", "finished"}


class _Bound:
    """Lets the first values of a label through and calls the rest ``other``: rows may bring any number of them."""

    def __init__(self) -> None:
        self._known: dict[str, set[str]] = {}
        self._lock = threading.Lock()

    def value(self, label: str, value: str) -> str:
        value = str(value)[:MAX_LABEL_CHARS].encode("utf-8", "replace").decode()
        known = self._known.setdefault(label, set())
        if value in known:
            return value
        with self._lock:
            if len(known) >= MAX_VALUES_PER_LABEL:
                return OTHER
            known.add(value)
        return value


class Metrics:
    """A subscriber of ``Signals``. One a process; children of a prefork pool may share the one made before the fork.

    With ``PROMETHEUS_MULTIPROC_DIR`` set, each process counts into files of that folder and whoever serves the metrics
    adds them up. Safe from any thread.
    """

    def __init__(self) -> None:
        self._multiprocess = MULTIPROCESS_VARIABLE in os.environ
        self._own = CollectorRegistry()
        self._bound = _Bound()
        self._metrics = {metric.name: self._made(metric) for metric in catalogue.METRICS}
        self._collectors: list[Collector] = []
        self._handlers: dict[type[Signal], Callable[[Any], None]] = {
            signals.Published: self._published,
            signals.PublishFailed: lambda _: self._count(catalogue.PUBLISH_ERRORS),
            signals.BrokerLost: self._broker_lost,
            signals.DatabaseUnavailable: lambda s: self._count(catalogue.DATABASE_ERRORS, s.process),
            signals.Claimed: self._claimed,
            signals.Withdrawn: self._withdrawn,
            signals.Accepted: self._accepted,
            signals.AcceptedAgain: lambda s: self._count(catalogue.ACCEPTED_AGAIN, s.template),
            signals.Retried: lambda s: self._count(catalogue.RETRIES, s.template, s.error_code),
            signals.Released: lambda s: self._count(catalogue.RELEASED, s.error_code),
            signals.Failed: lambda s: self._count(catalogue.FAILED, s.template, s.error_code),
            signals.ClaimLost: lambda s: self._count(catalogue.CLAIMS_LOST, s.transition),
            signals.Reaped: self._reaped,
            signals.Retained: self._retained,
            signals.FilesRemoved: self._files_removed,
        }

    def __call__(self, signal: Signal) -> None:
        """Count it."""
        if handler := self._handlers.get(type(signal)):
            handler(signal)

    def add(self, collector: Collector) -> None:
        """Serve what ``collector`` gives, too."""
        self._collectors.append(collector)

    def registry(self) -> CollectorRegistry:
        """What is to be served: this process's metrics, or those of all that share the folder, and what was added."""
        served = CollectorRegistry()
        if self._multiprocess:
            MultiProcessCollector(served)  # type: ignore[no-untyped-call]
        else:
            served.register(cast("Collector", self._own))
            ProcessCollector(registry=served)
        for collector in self._collectors:
            served.register(collector)
        return served

    def _made(self, metric: Metric) -> Counter | Histogram:
        if metric.kind is Kind.COUNTER:
            return Counter(metric.name, metric.meaning, metric.labels, registry=self._own)
        return Histogram(metric.name, metric.meaning, metric.labels, registry=self._own, buckets=metric.buckets)

    def _labelled(self, metric: Metric, values: tuple[str, ...]) -> Any:
        made = self._metrics[metric.name]
        if not metric.labels:
            return made
        return made.labels(
            *(self._bound.value(label, value) for label, value in zip(metric.labels, values, strict=True))
        )

    def _count(self, metric: Metric, *labels: str, by: float = 1) -> None:
        if by > 0:
            self._labelled(metric, labels).inc(by)

    def _observe(self, metric: Metric, value: float, *labels: str) -> None:
        self._labelled(metric, labels).observe(max(0.0, value))

    def _published(self, signal: signals.Published) -> None:
        self._count(catalogue.PUBLISHED, by=signal.count)
        self._count(catalogue.REPUBLISHED, by=signal.republished)
        if signal.count:
            self._observe(catalogue.PUBLISH_SECONDS, signal.seconds)
            self._observe(catalogue.RELAY_LATENCY, signal.oldest_age_seconds)

    def _broker_lost(self, signal: signals.BrokerLost) -> None:
        self._count(catalogue.BROKER_LOST)
        self._count(catalogue.BROKER_FREED, by=signal.freed)

    def _claimed(self, signal: signals.Claimed) -> None:
        self._count(catalogue.CLAIMED, signal.template)
        self._observe(catalogue.CLAIM_WAIT, signal.waited_seconds)

    def _withdrawn(self, signal: signals.Withdrawn) -> None:
        self._count(catalogue.WITHDRAWN, signal.reason)
        if signal.reason in _STOPPED:
            self._count(catalogue.DUPLICATES_STOPPED)

    def _accepted(self, signal: signals.Accepted) -> None:
        self._count(catalogue.ACCEPTED, signal.template, signal.provider)
        self._observe(catalogue.SEND_SECONDS, signal.send_seconds, signal.provider)
        self._observe(catalogue.ATTEMPTS, signal.attempts)
        self._count(catalogue.REFUSED_RECIPIENTS, by=signal.refused_recipients)

    def _reaped(self, signal: signals.Reaped) -> None:
        self._count(catalogue.REAPED, "released", by=signal.released)
        self._count(catalogue.REAPED, "given_up", by=signal.given_up)

    def _retained(self, signal: signals.Retained) -> None:
        self._count(catalogue.RETAINED, signal.status, "archived" if signal.archived else "deleted", by=signal.count)

    def _files_removed(self, signal: signals.FilesRemoved) -> None:
        self._count(catalogue.FILES_REMOVED, "removed", by=signal.removed)
        self._count(catalogue.FILES_REMOVED, "failed", by=signal.failed)
