"""Every metric that counts what happened: its name, kind, labels and meaning. The reference is checked against it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

_SHORT_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_LONG_SECONDS: Final = (0.01, 0.05, 0.1, 0.5, 1, 5, 15, 30, 60, 120, 300, 600, 1800, 3600, 21600)


class Kind(StrEnum):
    """What Prometheus calls it."""

    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric; a counter's name has its ``_total``."""

    name: str
    kind: Kind
    meaning: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


def _counter(name: str, meaning: str, *labels: str) -> Metric:
    return Metric(f"outbox_mail_{name}_total", Kind.COUNTER, meaning, labels)


def _histogram(name: str, meaning: str, *labels: str, buckets: tuple[float, ...]) -> Metric:
    return Metric(f"outbox_mail_{name}", Kind.HISTOGRAM, meaning, labels, buckets)


PUBLISHED: Final = _counter("published", "Ids that the relay handed to the broker.")
REPUBLISHED: Final = _counter(
    "republished", "Of these, ids that had been out before: countdowns or hints that got lost."
)
PUBLISH_SECONDS: Final = _histogram(
    "publish_seconds", "One round of the relay that published something.", buckets=_SHORT_SECONDS
)
RELAY_LATENCY: Final = _histogram(
    "relay_latency_seconds", "From due to published, of the row published first in a round.", buckets=_LONG_SECONDS
)
PUBLISH_ERRORS: Final = _counter("publish_errors", "Rounds in which the broker could not be reached; no row changed.")
BROKER_LOST: Final = _counter("broker_lost", "Times that the broker was found to have lost its contents.")
BROKER_FREED: Final = _counter("broker_freed", "Rows published again because of that.")
DATABASE_ERRORS: Final = _counter("database_errors", "Times that a process could not use the database.", "process")
CLAIMED: Final = _counter("claimed", "Claims that won their row.", "template")
CLAIM_WAIT: Final = _histogram("claim_wait_seconds", "From due to claimed.", buckets=_LONG_SECONDS)
WITHDRAWN: Final = _counter("withdrawn", "Claims that won nothing, by why.", "reason")
DUPLICATES_STOPPED: Final = _counter(
    "duplicates_stopped", "Of these, claims of a row that was taken or finished: sendings that did not happen twice."
)
ACCEPTED: Final = _counter(
    "accepted", "Messages that the provider accepted and that were recorded SENT.", "template", "provider"
)
SEND_SECONDS: Final = _histogram(
    "send_seconds", "The provider's call of an accepted message.", "provider", buckets=_SHORT_SECONDS
)
ATTEMPTS: Final = _histogram(
    "failed_attempts_before_accepted", "How often accepted messages had failed before.", buckets=(0, 1, 2, 3, 4, 6, 10)
)
REFUSED_RECIPIENTS: Final = _counter("refused_recipients", "Addresses that were refused for good in accepted messages.")
ACCEPTED_AGAIN: Final = _counter(
    "accepted_again", "Duplicates that did go out: accepted though SENT already.", "template"
)
RETRIES: Final = _counter("retries", "Attempts that failed and will be repeated.", "template", "error_code")
RELEASED: Final = _counter("released", "Messages given back without an attempt counted.", "error_code")
FAILED: Final = _counter("failed", "Messages that ended FAILED: new dead letters.", "template", "error_code")
CLAIMS_LOST: Final = _counter("claims_lost", "Reports of a holder whose claim was no longer the row's.", "transition")
REAPED: Final = _counter("reaped", "Leases that ran out; given_up ended FAILED.", "result")
RETAINED: Final = _counter("retained", "Finished rows that retention removed or archived.", "status", "action")
FILES_REMOVED: Final = _counter(
    "files_removed", "Owned attachment files: removed, or failed until the next sweep.", "result"
)

METRICS: Final = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
