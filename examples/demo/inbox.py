"""A web page on 127.0.0.1 that shows the received mails as a reader sees them."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from examples.demo.received import SHOWN_HEADERS, Received

_PAGE_POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; frame-src 'self'; base-uri 'none'"
)
# Mail is written by strangers: no scripts, no network, no forms, an origin of its own.
_MAIL_POLICY: Final = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"
_LISTED: Final = 200
_HTML: Final = "text/html; charset=utf-8"
_STATIC: Final = {"/style.css": "text/css", "/list.js": "text/javascript"}
_MAIL: Final = re.compile(r"/mail/(?P<number>\d{1,9})(?:/(?P<part>html|source|attachment/(?P<place>\d{1,3})))?")

_folder = Path(__file__).with_name("pages")
_pages = Environment(loader=FileSystemLoader(_folder), autoescape=True, undefined=StrictUndefined)


@dataclass(frozen=True)
class Answer:
    """One HTTP answer."""

    status: HTTPStatus
    content_type: str
    body: bytes
    policy: str = _PAGE_POLICY
    disposition: str | None = None


_MISSING: Final = Answer(HTTPStatus.NOT_FOUND, "text/plain", b"there is no such page\n")


def answer(host: str, path: str, mails: Sequence[Received]) -> Answer:
    """What a GET of ``path`` gets. ``mails`` in the order of arrival."""
    # A page of another site that points its own name at 127.0.0.1 must not read mail.
    if host.partition(":")[0] not in {"127.0.0.1", "localhost"}:
        return Answer(HTTPStatus.FORBIDDEN, "text/plain", b"use 127.0.0.1\n")
    if path in {"/", "/list"}:
        return _page("page.html" if path == "/" else "list.html", mails)
    if path in _STATIC:
        return Answer(HTTPStatus.OK, _STATIC[path], (_folder / path[1:]).read_bytes())
    found = _MAIL.fullmatch(path)
    mail = found and next((mail for mail in mails if mail.number == int(found["number"])), None)
    if not found or not mail:
        return _MISSING
    if found["part"] is None:
        return _page("page.html", mails, mail)
    return _part(mail, found["part"], int(found["place"] or 0))


def _page(template: str, mails: Sequence[Received], mail: Received | None = None) -> Answer:
    listed = list(reversed(mails))[:_LISTED]
    html = _pages.get_template(template).render(mails=listed, mail=mail, shown=SHOWN_HEADERS)
    return Answer(HTTPStatus.OK, _HTML, html.encode())


def _part(mail: Received, part: str, place: int) -> Answer:
    if part == "html":
        return Answer(HTTPStatus.OK, _HTML, (mail.html or "").encode(), policy=_MAIL_POLICY)
    if part == "source":
        return Answer(HTTPStatus.OK, "text/plain; charset=utf-8", mail.data)
    if place >= len(mail.attachments):
        return _MISSING
    attached = mail.attachments[place]
    # Always a download: shown in place, a stranger's HTML or SVG would run with this page's origin.
    return Answer(
        HTTPStatus.OK,
        "application/octet-stream",
        attached.content,
        disposition=f"attachment; filename*=UTF-8''{quote(attached.filename, safe='')}",
    )


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of browsers that went away: the terminal is the demo's."""


class Inbox:
    """Serves the page from a thread until ``close``. ``mails`` is asked anew for each request."""

    def __init__(self, mails: Callable[[], Sequence[Received]]) -> None:
        self._server = _Server(("127.0.0.1", 0), _handler(mails))
        threading.Thread(target=self._server.serve_forever, name="inbox", daemon=True).start()

    @property
    def url(self) -> str:
        """Where to look."""
        return f"http://127.0.0.1:{self._server.server_port}/"

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


def _handler(mails: Callable[[], Sequence[Received]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        server_version = "inbox"

        def do_GET(self) -> None:
            given = answer(self.headers.get("Host", ""), urlsplit(self.path).path, mails())
            self.send_response(given.status)
            self.send_header("Content-Type", given.content_type)
            self.send_header("Content-Length", str(len(given.body)))
            self.send_header("Content-Security-Policy", given.policy)
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("Referrer-Policy", "no-referrer")
            self.send_header("Cache-Control", "no-store")
            if given.disposition:
                self.send_header("Content-Disposition", given.disposition)
            self.end_headers()
            self.wfile.write(given.body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Say nothing, likewise."""

    return Handler
