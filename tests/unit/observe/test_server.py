"""The endpoint serves, and its absence harms nothing."""

from __future__ import annotations

import logging
import socket
import urllib.request

import pytest

from outbox_mail.observe.metrics import Metrics
from outbox_mail.observe.server import serve_metrics
from outbox_mail.outbox import signals


def scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        return str(answer.read().decode())


def test_what_was_counted_is_served() -> None:
    metrics = Metrics()
    metrics(signals.PublishFailed("down", 1.0))
    server = serve_metrics(metrics, "127.0.0.1", 0)
    assert server is not None
    with server:
        assert "outbox_mail_publish_errors_total 1.0" in scrape(server.port)


def test_a_port_in_use_is_logged_and_the_process_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, caplog.at_level(logging.ERROR):
        port = taken.getsockname()[1]
        assert serve_metrics(Metrics(), "127.0.0.1", port) is None

    record = next(record for record in caplog.records if record.message == "metrics_not_served")
    assert record.__dict__["port"] == port
    assert "in use" in record.__dict__["reason"]


@pytest.mark.parametrize("host", ["203.0.113.1", "no such host", ""])
def test_an_address_that_is_not_this_machine_s_is_no_reason_to_die(host: str) -> None:
    server = serve_metrics(Metrics(), host, 0)
    if server is not None:
        server.close()


def test_a_client_that_says_nothing_does_not_stop_others() -> None:
    server = serve_metrics(Metrics(), "127.0.0.1", 0)
    assert server is not None
    with server, socket.create_connection(("127.0.0.1", server.port)):
        assert "outbox_mail_" in scrape(server.port)


def test_it_listens_no_more_after_close() -> None:
    server = serve_metrics(Metrics(), "127.0.0.1", 0)
    assert server is not None
    port = server.port
    server.close()
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=1)
