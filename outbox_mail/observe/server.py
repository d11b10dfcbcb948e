"""Serves the metrics over HTTP, in a thread of its own."""

from __future__ import annotations

import logging
import socket
import threading
from socketserver import ThreadingMixIn
from types import TracebackType
from typing import Any, Final, Self
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import make_wsgi_app

from outbox_mail.observe.metrics import Metrics

_log = logging.getLogger(__name__)

_REQUEST_SECONDS: Final = 10
_STOP_SECONDS: Final = 5


class _Handler(WSGIRequestHandler):
    # A client that says nothing must not keep a thread.
    timeout = _REQUEST_SECONDS

    def log_message(self, *_: Any) -> None:
        """Say nothing of each scrape."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def server_bind(self) -> None:
        # The base class looks up its own name in the DNS, which may take seconds.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "localhost", self.server_address[1]
        self.setup_environ()

    def handle_error(self, *_: Any) -> None:
        """A client that goes away in the middle is nobody's fault."""


class _ServerV6(_Server):
    address_family = socket.AF_INET6


class MetricsServer:
    """A running endpoint; a context that closes it."""

    def __init__(self, server: WSGIServer) -> None:
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop listening. Safe to call twice."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(_STOP_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def serve_metrics(metrics: Metrics, host: str, port: int) -> MetricsServer | None:
    """Serve ``metrics`` at ``http://host:port/metrics``; port 0 takes a free one.

    Mail goes out without being measured rather than not at all: when the address can't be used (another worker on this
    machine has the port), it is logged as ``metrics_not_served`` and None is returned. There is no password: listen
    on an address that only Prometheus reaches. Start it after any fork.
    """
    kind = _ServerV6 if ":" in host else _Server
    try:
        server = kind((host, port), _Handler)
    except (OSError, OverflowError) as error:
        _log.error(
            "metrics_not_served",
            extra={
                "host": host,
                "port": port,
                "reason": error.strerror if isinstance(error, OSError) else str(error),
                "advice": "give each process on this machine a port of its own",
            },
        )
        return None
    server.set_app(make_wsgi_app(metrics.registry()))
    made = MetricsServer(server)
    _log.info("metrics_served", extra={"host": host, "port": made.port})
    return made
