"""Rows are written by SQL alone: whatever they hold, the mail is as it should be, or the row fails for good by name."""

from __future__ import annotations

import email
import time
import tracemalloc
from collections import Counter
from datetime import datetime
from email.policy import default
from typing import Any, Final

import pytest

from outbox_mail.errors import ComposeError, ErrorClass
from outbox_mail.mail.compose import RenderedContent, compose
from outbox_mail.mail.compose.composer import MAX_RECIPIENTS
from outbox_mail.mail.providers.base import Composed
from outbox_mail.testing.messages import claimed_message

PLAIN: Final = RenderedContent("Subject", "Text\n", "<p>HTML</p>\n")


def made(content: RenderedContent = PLAIN, **row: Any) -> Composed:
    return compose(
        claimed_message(**row), content, (), default_sender="Shop <shop@x.test>", message_id_domain="mail.x.test"
    )


@pytest.mark.parametrize(
    ("row", "code", "place"),
    [
        ({"to": []}, "no_recipient", "to, cc, bcc: "),
        ({"to": None, "cc": None, "bcc": None}, "no_recipient", "to, cc, bcc: "),
        ({"to": "a@x.test"}, "invalid_recipient", "to: "),
        ({"to": {"a@x.test": 1}}, "invalid_recipient", "to: "),
        ({"to": [None]}, "invalid_recipient", "to[0]: "),
        ({"to": ["a@x.test", 5]}, "invalid_recipient", "to[1]: "),
        ({"cc": [""]}, "invalid_recipient", "cc[0]: "),
        ({"bcc": ["nobody"]}, "invalid_recipient", "bcc[0]: "),
        ({"to": ["a@x.test, b@x.test"]}, "invalid_recipient", "to[0]: "),
        ({"to": ["a@x.test\r\nBcc: b@x.test"]}, "invalid_recipient", "to[0]: "),
        ({"to": ["A\r\nBcc: b@x.test <a@x.test>"]}, "invalid_recipient", "to[0]: "),
        ({"to": ['"A\nBcc: b@x.test" <a@x.test>']}, "invalid_recipient", "to[0]: "),
        ({"to": ["A\u2028B <a@x.test>"]}, "invalid_recipient", "to[0]: "),
        ({"to": ["=?utf-8?q?A=0D=0ABcc:_b@x.test?= <a@x.test>"]}, "invalid_recipient", "to[0]: "),
        ({"to": ["<a@x.test> SIZE=1"]}, "invalid_recipient", "to[0]: "),
        ({"to": ["a@x.test> RCPT TO:<b@x.test"]}, "invalid_recipient", "to[0]: "),
        ({"to": ['"a\r\nRCPT TO:<b@x.test>"@x.test']}, "invalid_recipient", "to[0]: "),
        ({"to": ["a@[127.0.0.1]"]}, "invalid_recipient", "to[0]: "),
        ({"to": [f"{'a' * 65}@x.test"]}, "invalid_recipient", "to[0]: "),
        ({"to": ["x" * 1_000_000]}, "invalid_recipient", "to[0]: "),
        ({"to": ["a@x.test"] * (MAX_RECIPIENTS + 1)}, "too_many_recipients", "to: "),
        ({"bcc": [f"a{n}@x.test" for n in range(MAX_RECIPIENTS)]}, "too_many_recipients", "to, cc, bcc: "),
        ({"sender": ""}, "invalid_sender", "sender: "),
        ({"sender": 5}, "invalid_sender", "sender: "),
        ({"sender": "a@x.test\nX: y"}, "invalid_sender", "sender: "),
        ({"sender": "a@x.test, b@x.test"}, "invalid_sender", "sender: "),
        ({"reply_to": "a@x.test"}, "invalid_reply_to", "reply_to: "),
        ({"reply_to": ["a@x.test", "b"]}, "invalid_reply_to", "reply_to[1]: "),
        ({"headers": [1]}, "invalid_header", "headers: "),
        ({"headers": "X-A: b"}, "invalid_header", "headers: "),
        ({"headers": {"Bcc": "b@x.test"}}, "invalid_header", "headers['Bcc']: "),
        ({"headers": {"X-A": "a\r\nBcc: b@x.test"}}, "invalid_header", "headers['X-A']: "),
        ({"headers": {"X-A\r\nBcc": "b@x.test"}}, "invalid_header", "headers['X-A\\r\\nBcc']: "),
        ({"headers": {"X-A": None}}, "invalid_header", "headers['X-A']: "),
        ({"headers": {"X-A": {"b": 1}}}, "invalid_header", "headers['X-A']: "),
        ({"headers": {"Content-Type": "text/html"}}, "invalid_header", "headers['Content-Type']: "),
        ({"headers": {"References": "<a@x.test>\u2028<b>"}}, "invalid_header", "headers['References']: "),
        ({"created_at": datetime(2026, 1, 1)}, "invalid_date", "created_at, send_at: "),  # noqa: DTZ001 - on purpose
    ],
)
def test_a_row_that_is_no_mail_fails_for_good_and_says_where(row: dict[str, Any], code: str, place: str) -> None:
    with pytest.raises(ComposeError) as caught:
        made(**row)
    assert caught.value.code == code
    assert caught.value.error_class is ErrorClass.PERMANENT
    assert str(caught.value).startswith(place)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500
    assert "b@x.test" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (RenderedContent("S", "t", None, sender="nobody"), "invalid_sender"),
        (RenderedContent("S", "t", None, reply_to=("nobody",)), "invalid_reply_to"),
        (RenderedContent("S" * 2001, "t", None), "invalid_subject"),
        (RenderedContent("S", None, None), "empty_content"),
    ],
)
def test_a_template_that_gives_no_mail_fails_for_good(content: RenderedContent, code: str) -> None:
    with pytest.raises(ComposeError) as caught:
        made(content)
    assert (caught.value.code, caught.value.error_class) == (code, ErrorClass.PERMANENT)


FIELDS: Final = Counter(
    ["from", "to", "subject", "date", "message-id", "auto-submitted", "x-a", "mime-version", "content-type"]
)
# Whatever a reader might take for a line end, a header, an encoded word, a boundary or the end of a mail.
INJECTIONS: Final = [
    "\r\nBcc: evil@x.test",
    "\nBcc: evil@x.test",
    "\rBcc: evil@x.test",
    "\r\n\r\n<script>",
    "\r\n.\r\nMAIL FROM:<evil@x.test>",
    "\n.\n",
    "\r.\r",
    "\x85Bcc: evil@x.test",
    "\u2028Bcc: evil@x.test",
    "\u2029Bcc: evil@x.test",
    "\x0bBcc: evil@x.test",
    "\x0cBcc: evil@x.test",
    "\x1eBcc: evil@x.test",
    "\0Bcc: evil@x.test",
    "=?utf-8?q?=0D=0ABcc:_evil@x.test?=",
    "=?utf-8?b?DQpCY2M6IGV2aWxAeC50ZXN0?=",
    "=?utf-8?q?a?=\r\n =?utf-8?q?b?=",
    "=?utf-7?q?+AA0ACg-Bcc?=",
    "=0D=0ABcc: evil@x.test",
    "%0D%0ABcc: evil@x.test",
    "\\r\\nBcc: evil@x.test",
    "--=_0198f0a12b3c7d4e8f5061728394a5b6_1\r\nContent-Type: text/html\r\n\r\nevil",
    "\r\n--=_0198f0a12b3c7d4e8f5061728394a5b6_2--\r\n",
    "\ud800\udfff",
    "嘊嘍Bcc: evil@x.test",
    "ਊഊBcc: evil@x.test",
    "\u202eevil",
    '"; filename="evil.exe',
    "<evil@x.test>",
    ", evil@x.test",
    "(evil@x.test)",
    "'\"><img src=x>",
]


@pytest.mark.parametrize("injection", INJECTIONS)
@pytest.mark.parametrize("place", ["subject", "text", "html", "name", "header", "sender", "reply_to", "local part"])
def test_nothing_gets_out_of_its_place(place: str, injection: str) -> None:
    value = f"before{injection}after"
    content = RenderedContent(
        subject=value if place == "subject" else "S",
        text=value if place == "text" else "t",
        html=value if place == "html" else "h",
    )
    rows: dict[str, dict[str, Any]] = {
        "name": {"to": [f"{value} <a@x.test>"]},
        "local part": {"to": [f"{value}@x.test"]},
        "sender": {"sender": f"{value} <s@x.test>"},
        "reply_to": {"reply_to": [f"{value} <r@x.test>"]},
    }
    try:
        composed = made(content, **rows.get(place, {}), headers={"X-A": value if place == "header" else "a"})
    except ComposeError:
        assert place not in {"subject", "text", "html"}
        return
    message = email.message_from_bytes(composed.data, policy=default)
    fields = Counter(name.lower() for name in message.keys())  # noqa: SIM118 - doubled fields count
    assert fields - Counter({"reply-to": 1}) == FIELDS
    assert [part.get_content_type() for part in message.walk()] == ["multipart/alternative", "text/plain", "text/html"]
    assert composed.recipients in {("ayse@example.com",), ("a@x.test",)} or place == "local part"
    assert not any("evil" in address.addr_spec for address in message["to"].addresses) or place == "local part"
    assert len(composed.recipients) == len(message["to"].addresses) == 1
    assert composed.data.count(b"\n") == composed.data.count(b"\r") == composed.data.count(b"\r\n")
    assert b"\0" not in composed.data
    assert max(map(len, composed.data.split(b"\r\n"))) <= 998


@pytest.mark.parametrize("size", [1_000_000])
@pytest.mark.parametrize(
    "piece", ["From x\n", " \n", "é \n", "é\nFrom ", "=", "\r", "é" + "From " * 30, "\0", "é" * 2000]
)
def test_a_large_hostile_text_is_composed_in_linear_time(piece: str, size: int) -> None:
    text = (piece * (size // len(piece) + 1))[:size]
    start = time.process_time()
    made(RenderedContent("S", text, None))
    assert time.process_time() - start < 1.5


@pytest.mark.parametrize("first", ["", "é", "🌷"])
@pytest.mark.parametrize("piece", ["\n", "\r", "ab\n", "é \n", "ş\r", "From é\n", "漢字\n", "x", "\0", "\ud800"])
def test_a_large_text_takes_six_times_its_size_at_most(piece: str, first: str) -> None:
    text = first + piece * 500_000
    size = len(text.encode("utf-8", "replace"))
    tracemalloc.start()
    composed = made(RenderedContent("S", text, None))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < len(composed.data) < peak < 6 * size + 100_000


def test_the_most_recipients_are_composed_quickly() -> None:
    to = [f"İsim {number}, Soyad <a{number}@örnek.example>" for number in range(MAX_RECIPIENTS)]
    start = time.process_time()
    composed = made(to=to)
    assert time.process_time() - start < 1.5
    assert len(composed.recipients) == MAX_RECIPIENTS
