"""The table's gauges, asked through a real database."""

from __future__ import annotations

import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from prometheus_client import CollectorRegistry

from outbox_mail.observe.metrics import Metrics
from outbox_mail.observe.server import serve_metrics
from outbox_mail.observe.start import connecting, observe
from outbox_mail.observe.table import GAUGES, UP, TableGauges
from outbox_mail.outbox.processes import report_progress
from outbox_mail.outbox.signals import PublishFailed, Signals
from outbox_mail.settings import load_settings

Connection = psycopg.Connection[Any]


def registry(gauges: TableGauges) -> CollectorRegistry:
    made = CollectorRegistry()
    made.register(gauges)
    return made


def test_all_gauges_are_there_for_an_empty_outbox(database_url: str) -> None:
    found = registry(TableGauges(connecting(database_url)))

    assert {family.name for family in found.collect() if family.samples} == {gauge.name for gauge in GAUGES}
    assert found.get_sample_value(UP) == 1
    assert found.get_sample_value("outbox_mail_oldest_due_pending_age_seconds") == 0
    assert found.get_sample_value("outbox_mail_messages", {"status": "FAILED"}) == 0


def test_they_tell_what_is_in_the_table(database_url: str, connection: Connection) -> None:
    connection.execute(
        """INSERT INTO email_messages ("to", template, due_at, hold_id) VALUES
            (ARRAY['a@example.com'], 'T', now() - interval '90 s', NULL),
            (ARRAY['a@example.com'], 'T', now() - interval '900 s', 1)"""
    )
    connection.execute(
        """INSERT INTO outbox_holds (scope, value, reason, held_by, until) VALUES
            ('all', '', 'Maintenance: new disks', 'a', NULL), ('tag', 'x', 'r', 'a', NULL),
            ('tag', 'y', 'r', 'a', now() - interval '1 s')"""
    )
    report_progress(connection, "relay", "idle", started=True)

    found = registry(TableGauges(connecting(database_url)))

    age = found.get_sample_value("outbox_mail_oldest_due_pending_age_seconds")
    assert age == pytest.approx(90, abs=10)
    assert found.get_sample_value("outbox_mail_messages", {"status": "PENDING"}) == 2
    assert found.get_sample_value("outbox_mail_pending", {"state": "held"}) == 1
    assert found.get_sample_value("outbox_mail_hold_active", {"scope": "all", "maintenance": "true"}) == 1
    assert found.get_sample_value("outbox_mail_hold_active", {"scope": "tag", "maintenance": "false"}) == 1
    assert found.get_sample_value("outbox_mail_processes", {"kind": "relay", "state": "alive"}) == 1
    assert found.get_sample_value("outbox_mail_processes", {"kind": "worker", "state": "alive"}) == 0


def test_a_database_that_is_down_is_told_and_comes_back(database_url: str) -> None:
    up = False

    @contextmanager
    def connect() -> Iterator[Connection]:
        with connecting(database_url if up else "postgresql://x:y@127.0.0.1:1/z")() as opened:
            yield opened

    found = registry(TableGauges(connect, cache_seconds=0))
    assert found.get_sample_value(UP) == 0
    assert found.get_sample_value("outbox_mail_messages", {"status": "SENT"}) is None

    up = True
    assert found.get_sample_value(UP) == 1


def test_many_scrapes_ask_the_database_once(database_url: str) -> None:
    asked = 0

    @contextmanager
    def connect() -> Iterator[Connection]:
        nonlocal asked
        asked += 1
        with connecting(database_url)() as opened:
            yield opened

    found = registry(TableGauges(connect, cache_seconds=60))
    threads = [threading.Thread(target=lambda: list(found.collect())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert asked == 1


def test_a_database_that_is_slow_is_not_waited_for(database_url: str) -> None:
    with psycopg.connect(database_url) as other:
        other.execute("LOCK TABLE email_messages IN ACCESS EXCLUSIVE MODE")
        found = registry(TableGauges(connecting(database_url), timeout_seconds=0.2))
        started = time.monotonic()
        assert found.get_sample_value(UP) == 0
        assert time.monotonic() - started < 5


def test_one_call_starts_all_of_it(database_url: str) -> None:
    import logging

    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    signals = Signals()
    settings = load_settings(database_url=database_url, metrics_host="127.0.0.1")
    try:
        assert observe(settings, signals, port=0) is None
        server = observe(settings, signals, port=_free_port(), table=True)
        assert server is not None
        with server:
            signals.emit(PublishFailed("down", 1.0))
            with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=10) as answer:
                text = answer.read().decode()
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        logging.captureWarnings(capture=False)

    assert "outbox_mail_publish_errors_total 1.0" in text
    assert "outbox_mail_table_up 1.0" in text
    assert "process_cpu_seconds_total" in text


def _free_port() -> int:
    with serve_metrics(Metrics(), "127.0.0.1", 0) as server:  # type: ignore[union-attr]
        return server.port
