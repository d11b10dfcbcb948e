"""What the signals say is what Prometheus is told."""

from __future__ import annotations

import dataclasses
import inspect
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from prometheus_client.parser import text_string_to_metric_families

from outbox_mail.observe import catalogue
from outbox_mail.observe.metrics import MAX_VALUES_PER_LABEL, Metrics
from outbox_mail.outbox import signals
from outbox_mail.outbox.signals import Signal, Signals


def value(metrics: Metrics, name: str, **labels: str) -> float:
    found = metrics.registry().get_sample_value(name, labels)
    return 0.0 if found is None else found


def example(kind: type[Signal]) -> Signal:
    values: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        made: dict[str, Any] = {"UUID": uuid4(), "str": "x", "int": 2, "float": 0.5, "bool": False}
        values[field.name] = made[str(field.type)]
    return kind(**values)


KINDS = [
    kind for _, kind in inspect.getmembers(signals, inspect.isclass) if issubclass(kind, Signal) and kind is not Signal
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_signal_counts_somewhere(kind: type[Signal]) -> None:
    metrics = Metrics()
    before = {(s.name, *s.labels.items()): s.value for f in metrics._own.collect() for s in f.samples}

    metrics(example(kind))

    after = {(s.name, *s.labels.items()): s.value for f in metrics._own.collect() for s in f.samples}
    changed = {key for key, counted in after.items() if counted != before.get(key) and "_created" not in key[0]}
    assert changed


def test_a_claim_that_found_its_row_taken_or_finished_is_a_duplicate_stopped() -> None:
    metrics = Metrics()
    for reason in ("taken", "finished", "not_due", "held", "gone"):
        metrics(signals.Withdrawn(uuid4(), reason))

    assert value(metrics, "outbox_mail_duplicates_stopped_total") == 2
    assert value(metrics, "outbox_mail_withdrawn_total", reason="not_due") == 1


def test_an_accepted_message_tells_its_duration_and_its_failed_attempts() -> None:
    metrics = Metrics()
    metrics(signals.Accepted(uuid4(), "ORDER", "smtp", 0.3, attempts=2, refused_recipients=1))

    assert value(metrics, "outbox_mail_accepted_total", template="ORDER", provider="smtp") == 1
    assert value(metrics, "outbox_mail_send_seconds_sum", provider="smtp") == pytest.approx(0.3)
    assert value(metrics, "outbox_mail_failed_attempts_before_accepted_bucket", le="1.0") == 0
    assert value(metrics, "outbox_mail_failed_attempts_before_accepted_bucket", le="2.0") == 1
    assert value(metrics, "outbox_mail_refused_recipients_total") == 1


def test_a_round_that_published_nothing_leaves_the_latencies_alone() -> None:
    metrics = Metrics()
    metrics(signals.Published(0, 0.1, 0.0))

    assert value(metrics, "outbox_mail_relay_latency_seconds_count") == 0


def test_rows_can_not_make_any_number_of_series() -> None:
    metrics = Metrics()
    for number in range(MAX_VALUES_PER_LABEL * 3):
        metrics(signals.Failed(uuid4(), f"T{number}", "smtp_550", 1))

    family = next(f for f in metrics._own.collect() if f.name == "outbox_mail_failed")
    templates = {s.labels["template"] for s in family.samples}
    assert len(templates) == MAX_VALUES_PER_LABEL + 1
    assert (
        value(metrics, "outbox_mail_failed_total", template="other", error_code="smtp_550") == MAX_VALUES_PER_LABEL * 2
    )


@pytest.mark.parametrize("hostile", ['"} 1\nevil_total 1', "\ud800", "x" * 10_000, "\x00\x1b[31m", ""])
def test_a_hostile_label_can_not_break_the_exposition(hostile: str) -> None:
    from prometheus_client import generate_latest

    metrics = Metrics()
    metrics(signals.Failed(uuid4(), hostile, hostile, 1))

    text = generate_latest(metrics.registry()).decode()
    families = {family.name for family in text_string_to_metric_families(text)}
    assert "outbox_mail_failed" in families
    assert "evil" not in families


def test_metrics_that_fail_never_disturb_the_emitter() -> None:
    metrics = Metrics()
    bus = Signals()
    bus.subscribe(metrics)
    bus.emit(signals.Withdrawn(uuid4(), None))  # type: ignore[arg-type]
    bus.emit(signals.Reaped(1, 1))

    assert value(metrics, "outbox_mail_reaped_total", result="given_up") == 1


def test_two_of_them_in_one_process_do_not_meet() -> None:
    first, second = Metrics(), Metrics()
    first(signals.Reaped(3, 0))

    assert value(second, "outbox_mail_reaped_total", result="released") == 0


def test_names_and_labels_follow_one_scheme() -> None:
    for metric in catalogue.METRICS:
        assert metric.name.startswith("outbox_mail_")
        assert metric.name.endswith("_total") == (metric.kind is catalogue.Kind.COUNTER)
        assert not set(metric.labels) & {"id", "message_id", "recipient", "to"}
    assert len({metric.name for metric in catalogue.METRICS}) == len(catalogue.METRICS)


def test_children_of_a_prefork_pool_are_added_up_by_their_parent(tmp_path: Path) -> None:
    code = textwrap.dedent("""
        import os
        from outbox_mail.observe.metrics import Metrics
        from outbox_mail.outbox import signals
        metrics = Metrics()
        children = []
        for _ in range(3):
            pid = os.fork()
            if pid == 0:
                metrics(signals.Reaped(2, 0))
                os._exit(0)
            children.append(pid)
        for pid in children:
            os.waitpid(pid, 0)
        metrics(signals.Reaped(1, 0))
        print(metrics.registry().get_sample_value("outbox_mail_reaped_total", {"result": "released"}))
    """)
    environment = os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    shown = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)

    assert float(shown.stdout) == 7
