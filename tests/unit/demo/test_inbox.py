"""The demo's web page shows strangers' mail without letting it do anything."""

from __future__ import annotations

import urllib.error
import urllib.request
from email.message import EmailMessage
from http import HTTPStatus

import pytest

from examples.demo.inbox import Inbox, answer
from examples.demo.received import Received

HOST = "127.0.0.1:8025"


def mail(number: int = 1, /, **changes: str) -> Received:
    message = EmailMessage()
    message["From"] = changes.get("sender", "Shop <shop@shop.example>")
    message["To"] = changes.get("to", "Ayşe <ayse@posta.example>")
    message["Subject"] = changes.get("subject", "Hello")
    message.set_content(changes.get("text", "Hello, Ayşe"))
    message.add_alternative(changes.get("html", "<p>Hello, <b>Ayşe</b></p>"), subtype="html")
    message.add_attachment(b"a;b\n", maintype="text", subtype="csv", filename=changes.get("filename", "sales.csv"))
    return Received(number, "shop@shop.example", ["ayse@posta.example"], message.as_bytes())


def test_the_list_names_each_mail_newest_first() -> None:
    page = answer(HOST, "/", [mail(1, subject="first"), mail(2, subject="second")])
    assert page.status == HTTPStatus.OK
    assert 0 < page.body.find(b"second") < page.body.find(b"first")


def test_a_mail_is_shown_with_its_headers_text_and_attachments() -> None:
    page = answer(HOST, "/mail/1", [mail()]).body.decode()
    assert "Ayşe &lt;ayse@posta.example&gt;" in page
    assert "Hello, Ayşe" in page
    assert 'href="/mail/1/attachment/0"' in page


@pytest.mark.parametrize("field", ["subject", "to", "sender", "text", "filename"])
def test_markup_in_a_mail_is_not_markup_of_the_page(field: str) -> None:
    value = '"<script>alert(1)</script>" <a@b.example>' if field in {"to", "sender"} else "<script>alert(1)</script>"
    page = answer(HOST, "/mail/1", [mail(**{field: value})])
    assert b"<script>alert" not in page.body
    assert "script-src 'self'" in page.policy


def test_the_html_of_a_mail_can_run_nothing_and_load_nothing() -> None:
    part = answer(HOST, "/mail/1/html", [mail(html="<script>fetch('https://evil.example')</script>")])
    assert part.policy.startswith("sandbox;")
    assert "default-src 'none'" in part.policy
    assert "script-src" not in part.policy


def test_an_inline_image_is_put_in_place() -> None:
    message = EmailMessage()
    message["Subject"] = "Logo"
    message.set_content('<img src="cid:logo">', subtype="html")
    message.add_related(b"\x89PNG", maintype="image", subtype="png", cid="<logo>")
    received = Received(1, "", ["a@b.example"], message.as_bytes())
    assert b'src="data:image/png;base64,iVBORw=="' in answer(HOST, "/mail/1/html", [received]).body


def test_an_attachment_is_downloaded_and_never_shown_in_place() -> None:
    part = answer(HOST, "/mail/1/attachment/0", [mail(filename='rapor "ş"\u2028.csv')])
    assert part.body == b"a;b\n"
    assert part.content_type == "application/octet-stream"
    assert part.disposition is not None
    assert part.disposition.startswith("attachment; filename*=UTF-8''rapor%20")
    assert part.disposition.isascii()


@pytest.mark.parametrize(
    "path", ["/mail/2", "/mail/1/attachment/1", "/mail/1/../x", "/etc/passwd", "/page.html", "/mail/x"]
)
def test_what_is_not_there_is_not_found(path: str) -> None:
    assert answer(HOST, path, [mail()]).status == HTTPStatus.NOT_FOUND


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8025", "", "127.0.0.1.evil.example"])
def test_another_name_for_this_machine_gets_nothing(host: str) -> None:
    assert answer(host, "/", [mail()]).status == HTTPStatus.FORBIDDEN


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\r\n\r\n",
        b"Subject: =?utf-8?b?\xff?=\r\n\r\nx",
        b"Content-Type: multipart/mixed\r\n\r\nno boundary",
        b"\x00\xff" * 50,
        b"Content-Type: text/html; charset=no-such\r\n\r\n<b>x",
        b"To: <<<>>>,,\r\nSubject: x\r\n\r\n",
    ],
)
def test_broken_mail_is_shown_as_far_as_it_goes(data: bytes) -> None:
    received = Received(1, "", ["a@b.example"], data)
    for path in ("/", "/list", "/mail/1", "/mail/1/html", "/mail/1/source"):
        assert answer(HOST, path, [received]).status == HTTPStatus.OK


def test_the_page_is_served_on_the_loopback_address_only() -> None:
    inbox = Inbox(lambda: [mail()])
    try:
        assert inbox.url.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(inbox.url, timeout=5) as response:
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            assert "default-src 'none'" in response.headers["Content-Security-Policy"]
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(inbox.url + "mail/7", timeout=5)
    finally:
        inbox.close()
