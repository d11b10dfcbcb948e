"""Attachments: names of any script, inline images by cid, and fields that try to be more than they are."""

from __future__ import annotations

import email
import tracemalloc
from email.message import EmailMessage
from email.policy import default
from typing import Any, Final

import pytest

from outbox_mail.errors import ComposeError, ErrorClass
from outbox_mail.mail.compose import LoadedAttachment, RenderedContent, compose
from outbox_mail.testing.messages import claimed_message

CONTENT: Final = RenderedContent("Subject", "Text\n", '<p>Hello</p><img src="cid:logo">')


def mail(*attachments: LoadedAttachment, content: RenderedContent = CONTENT) -> bytes:
    return compose(
        claimed_message(), content, attachments, default_sender="s@x.test", message_id_domain="mail.x.test"
    ).data


def parsed(data: bytes) -> EmailMessage:
    message = email.message_from_bytes(data, policy=default)
    assert isinstance(message, EmailMessage)
    assert [part.defects for part in message.walk() if part.defects] == []
    return message


def shape(message: Any) -> Any:
    if message.is_multipart():
        return message.get_content_type(), [shape(part) for part in message.iter_parts()]
    return message.get_content_type()


@pytest.mark.parametrize(
    "filename",
    [
        "report.pdf",
        "a b, c; d.txt",
        "it's (1).txt",
        "fatura – ğüşiöç.pdf",
        "請求書.pdf",
        "فاتورة.pdf",
        "🌷" * 20 + ".png",
        "ğ" * 196 + ".txt",
        "a" * 196 + ".txt",
        'say "hi".txt',
        "100%.txt",
        "%2e%2e.txt",
        "utf-8''x.txt",
        "=?utf-8?q?a?=.txt",
        "a*0*=b.txt",
        "~#$&'+^`{}|.txt",
        "CON",
        ".htaccess",
        "e\u0301.txt",
        "a\xa0b.txt",
    ],
)
def test_a_file_name_comes_out_as_it_went_in(filename: str) -> None:
    data = mail(LoadedAttachment(filename, "application/octet-stream", b"\0\r\n\xff"))
    [attachment] = parsed(data).iter_attachments()
    assert attachment.get_filename() == filename
    assert attachment.get_content() == b"\0\r\n\xff"
    assert attachment.get_content_disposition() == "attachment"
    lines = data.split(b"\r\n")
    assert all(len(line) <= 78 or filename.encode() in line for line in lines)
    assert data.isascii()


def test_old_readers_find_an_international_name_beside_the_type() -> None:
    data = mail(LoadedAttachment("ğüş.pdf", "application/pdf", b"x"))
    assert b'Content-Type: application/pdf; name="=?utf-8?b?xJ/DvMWfLnBkZg==?="\r\n' in data
    assert b"Content-Disposition: attachment; filename*=utf-8''%C4%9F%C3%BC%C5%9F.pdf\r\n" in data


def test_the_parameters_of_a_type_are_kept() -> None:
    data = mail(LoadedAttachment("a.csv", "text/csv; charset=utf-16;header=present", "é".encode("utf-16")))
    [attachment] = parsed(data).iter_attachments()
    assert attachment["content-type"].params == {"charset": "utf-16", "header": "present", "name": "a.csv"}
    assert attachment.get_content() == "é"


def test_a_type_that_has_a_name_keeps_it() -> None:
    data = mail(LoadedAttachment("a.csv", "text/csv; name=b.csv", b"x"))
    [attachment] = parsed(data).iter_attachments()
    assert attachment["content-type"].params == {"name": "b.csv"}
    assert attachment.get_filename() == "a.csv"


def test_a_long_type_is_folded() -> None:
    parameters = "; ".join(f"{letter * 100}={letter * 100}" for letter in "abcde")
    data = mail(LoadedAttachment("a.bin", f"{'x' * 100}/{'y' * 100}; {parameters}", b"x"))
    assert max(map(len, data.split(b"\r\n"))) < 250
    assert parsed(data)


LOGO: Final = LoadedAttachment("logo.png", "image/png", b"png", "logo")
PDF: Final = LoadedAttachment("a.pdf", "application/pdf", b"pdf")


@pytest.mark.parametrize(
    ("text", "html", "attachments", "expected"),
    [
        ("t", None, (), "text/plain"),
        (None, "h", (), "text/html"),
        ("t", "h", (), ("multipart/alternative", ["text/plain", "text/html"])),
        ("t", None, (PDF,), ("multipart/mixed", ["text/plain", "application/pdf"])),
        (None, "cid:logo", (LOGO,), ("multipart/related", ["text/html", "image/png"])),
        (
            "t",
            "cid:logo",
            (PDF, LOGO, PDF),
            (
                "multipart/mixed",
                [
                    (
                        "multipart/alternative",
                        ["text/plain", ("multipart/related", ["text/html", "image/png"])],
                    ),
                    "application/pdf",
                    "application/pdf",
                ],
            ),
        ),
        ("cid:logo", None, (LOGO,), ("multipart/mixed", ["text/plain", "image/png"])),
        (None, "<img src='cid:logo2'>", (LOGO,), ("multipart/mixed", ["text/html", "image/png"])),
    ],
)
def test_the_parts_are_nested_as_readers_expect(
    text: str | None, html: str | None, attachments: tuple[LoadedAttachment, ...], expected: Any
) -> None:
    assert shape(parsed(mail(*attachments, content=RenderedContent("S", text, html)))) == expected


@pytest.mark.parametrize(
    ("content_id", "html"),
    [
        ("logo", '<img src="cid:logo">'),
        ("logo", "<img src=CID:logo>"),
        ("logo", "url('cid:logo')"),
        ("logo@x.test", '<img src="cid:logo@x.test">'),
        ("logo@x.test", '<img src="cid:logo%40x.test">'),
        ("a.b+c_d-e", '<img src="cid:a.b+c_d-e"/>'),
    ],
)
def test_an_image_that_the_html_shows_goes_with_it(content_id: str, html: str) -> None:
    data = mail(LoadedAttachment("logo.png", "image/png", b"png", content_id), content=RenderedContent("S", None, html))
    [image] = parsed(data).iter_attachments()
    assert image["content-id"] == f"<{content_id}>"
    assert image.get_content_disposition() == "inline"
    assert image.get_filename() == "logo.png"
    assert image.get_content() == b"png"
    assert b'multipart/related; type="text/html"' in data


@pytest.mark.parametrize(
    ("attachment", "place"),
    [
        (LoadedAttachment("a\r\nBcc: x", "text/plain", b""), "attachments[1].filename"),
        (LoadedAttachment("a\u2028b", "text/plain", b""), "attachments[1].filename"),
        (LoadedAttachment("a\u202efdp.exe", "text/plain", b""), "attachments[1].filename"),
        (LoadedAttachment("../a", "text/plain", b""), "attachments[1].filename"),
        (LoadedAttachment("", "text/plain", b""), "attachments[1].filename"),
        (LoadedAttachment("a" * 201, "text/plain", b""), "attachments[1].filename"),
        (LoadedAttachment("\ud800", "text/plain", b""), "attachments[1].filename"),
        (LoadedAttachment("a", "text/plain\r\nX: y", b""), "attachments[1].content_type"),
        (LoadedAttachment("a", 'text/plain; x="\r\n"', b""), "attachments[1].content_type"),
        (LoadedAttachment("a", "text", b""), "attachments[1].content_type"),
        (LoadedAttachment("a", "message/rfc822", b""), "attachments[1].content_type"),
        (LoadedAttachment("a", "multipart/mixed; boundary=x", b""), "attachments[1].content_type"),
        (LoadedAttachment("a", "image/png", b"", "a>\r\nBcc: x"), "attachments[1].content_id"),
        (LoadedAttachment("a", "image/png", b"", ""), "attachments[1].content_id"),
        (LoadedAttachment("a", "image/png", b"", "logo"), "attachments[1].content_id"),
    ],
)
def test_a_field_that_can_not_stand_in_a_mail_is_a_permanent_error(attachment: LoadedAttachment, place: str) -> None:
    with pytest.raises(ComposeError) as caught:
        mail(LOGO, attachment)
    assert caught.value.code == "attachment_invalid"
    assert caught.value.error_class is ErrorClass.PERMANENT
    assert str(caught.value).startswith(f"{place}: ")


def test_a_large_file_does_not_multiply_in_memory() -> None:
    data = bytes(5_000_000)
    mail(PDF)
    tracemalloc.start()
    composed = mail(LoadedAttachment("a.bin", "application/octet-stream", data))
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 1.4 * len(data)
    assert peak < 1.6 * len(data) + 1_000_000
    assert len(composed) > 1.36 * len(data)
