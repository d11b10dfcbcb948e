"""The head, the envelope, and that nothing but row and template decides the bytes."""

from __future__ import annotations

import email.header
import hashlib
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from email.message import EmailMessage
from email.policy import default
from typing import Any, Final
from uuid import UUID

import pytest

from outbox_mail.errors import ComposeError, ErrorClass
from outbox_mail.mail.compose import LoadedAttachment, RenderedContent, compose
from outbox_mail.mail.providers.base import Composed
from outbox_mail.testing.messages import claimed_message

CONTENT: Final = RenderedContent("Order 42", "Hello\n", None)
SUBJECT: Final = "Siparişiniz yola çıktı"
BYTES: Final = """\
From: Shop <shop@x.test>
To: =?utf-8?b?WcSxbG1heiwgQXnFn2U=?= <ayse@xn--rnek-4qa.example>, b@x.test
Cc: Ada Lovelace <ada@x.test>
Reply-To: help@x.test
Subject: =?utf-8?b?U2lwYXJpxZ9pbml6IHlvbGEgw6fEsWt0xLE=?=
Date: Thu, 05 Mar 2026 12:30:01 +0000
Message-ID: <0198f0a12b3c7d4e8f5061728394a5b6@mail.x.test>
Auto-Submitted: auto-generated
List-Unsubscribe: <https://x.test/u>
X-Tag: spring
MIME-Version: 1.0
Content-Type: multipart/alternative;
 boundary="=_0198f0a12b3c7d4e8f5061728394a5b6_2"

--=_0198f0a12b3c7d4e8f5061728394a5b6_2
Content-Type: text/plain; charset=utf-8
Content-Transfer-Encoding: 7bit

Hello

--=_0198f0a12b3c7d4e8f5061728394a5b6_2
Content-Type: text/html; charset=utf-8
Content-Transfer-Encoding: quoted-printable

<p>Merhaba Ay=C5=9Fe, your order number 42 left the warehouse.</p>

--=_0198f0a12b3c7d4e8f5061728394a5b6_2--
"""


def made(content: RenderedContent = CONTENT, default_sender: str = "Shop <shop@x.test>", **row: Any) -> Composed:
    return compose(claimed_message(**row), content, (), default_sender=default_sender, message_id_domain="mail.x.test")


def head(composed: Composed) -> EmailMessage:
    message = email.message_from_bytes(composed.data, policy=default)
    assert isinstance(message, EmailMessage)
    return message


def test_a_small_mail_byte_by_byte() -> None:
    composed = made(
        RenderedContent(SUBJECT, "Hello\n", "<p>Merhaba Ayşe, your order number 42 left the warehouse.</p>"),
        to=['"Yılmaz, Ayşe" <ayse@örnek.example>', "b@x.test"],
        cc=["Ada Lovelace <ada@x.test>"],
        bcc=["hidden@x.test"],
        reply_to=["help@x.test"],
        headers={"X-Tag": "spring", "List-Unsubscribe": "<https://x.test/u>"},
    )
    assert composed.data.decode() == BYTES.replace("\n", "\r\n")
    assert composed.message_id == "<0198f0a12b3c7d4e8f5061728394a5b6@mail.x.test>"
    assert composed.envelope_sender == "shop@x.test"
    assert composed.recipients == ("ayse@xn--rnek-4qa.example", "b@x.test", "ada@x.test", "hidden@x.test")
    assert composed.id == UUID("0198f0a1-2b3c-7d4e-8f50-61728394a5b6")
    assert not composed.needs_smtputf8


_PROGRAM: Final = """
import hashlib
from outbox_mail.mail.compose import LoadedAttachment, RenderedContent, compose
from outbox_mail.testing.messages import claimed_message
mail = compose(
    claimed_message(headers=dict([("X-B", "b"), ("X-A", "a ş")]), to=["Ayşe <a@örnek.example>"], cc=["b@x.test"]),
    RenderedContent("Sipariş", "metin ş", "<img src='cid:logo'>ş"),
    [LoadedAttachment("ğ.png", "image/png", bytes(1000), "logo"), LoadedAttachment("a.csv", "text/csv", b"a;b")],
    default_sender="Shop <shop@x.test>", message_id_domain="mail.x.test")
print(hashlib.sha256(mail.data).hexdigest())
"""


@pytest.mark.parametrize(
    ("seed", "zone", "language"),
    [("0", "UTC", "C"), ("1", "Asia/Tokyo", "C.UTF-8"), ("77", "America/St_Johns", "tr_TR")],
)
def test_another_machine_makes_the_same_bytes(seed: str, zone: str, language: str) -> None:
    environment = os.environ | {"PYTHONHASHSEED": seed, "TZ": zone, "LC_ALL": language}
    # When this changes, rows that wait for another attempt meet their provider's idempotency token with another body.
    done = subprocess.run([sys.executable, "-c", _PROGRAM], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0b6a0af9af987fa9b04910e2f1bad5dfee40e47155daf2d67e4df513c00e5499"


def test_the_order_of_the_headers_in_the_row_changes_nothing() -> None:
    one = made(headers={"X-A": "a", "X-B": "b", "Auto-Submitted": "no"})
    other = made(headers={"Auto-Submitted": "no", "X-B": "b", "X-A": "a"})
    assert one.data == other.data


def test_what_another_attempt_changes_in_the_row_does_not_change_the_bytes() -> None:
    outcomes = {"ayse@example.com": {"state": "deferred"}}
    assert made().data == made(claims=7, attempt_count=3, outcomes=outcomes, priority=3, parameters={"a": 1}).data


@pytest.mark.parametrize(
    ("created_at", "send_at", "date"),
    [
        (datetime(2026, 3, 5, 12, 30, 1, 999_999, UTC), None, "Thu, 05 Mar 2026 12:30:01 +0000"),
        (datetime(2026, 1, 1, 1, 0, tzinfo=timezone(timedelta(hours=3))), None, "Wed, 31 Dec 2025 22:00:00 +0000"),
        (datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 2, 28, tzinfo=UTC), "Sun, 28 Feb 2027 00:00:00 +0000"),
        (datetime(2026, 1, 1, tzinfo=UTC), datetime(2020, 2, 29, tzinfo=UTC), "Thu, 01 Jan 2026 00:00:00 +0000"),
    ],
)
def test_the_date_is_the_rows(created_at: datetime, send_at: datetime | None, date: str) -> None:
    assert f"\r\nDate: {date}\r\n".encode() in made(created_at=created_at, send_at=send_at).data


def test_the_sender_is_the_rows_else_the_templates_else_the_settings() -> None:
    by_template = RenderedContent("S", "t", None, sender="Template <t@x.test>", reply_to=("r@x.test",))
    assert made().envelope_sender == "shop@x.test"
    assert head(made())["from"] == "Shop <shop@x.test>"
    assert head(made())["reply-to"] is None
    assert made(by_template).envelope_sender == "t@x.test"
    assert head(made(by_template))["reply-to"] == "r@x.test"
    by_row = made(by_template, sender="Row <row@örnek.example>", reply_to=["own@x.test"])
    assert by_row.envelope_sender == "row@xn--rnek-4qa.example"
    assert head(by_row)["from"] == "Row <row@xn--rnek-4qa.example>"
    assert head(by_row)["reply-to"] == "own@x.test"


def test_hidden_recipients_are_nowhere_in_the_bytes() -> None:
    composed = made(to=["a@x.test"], bcc=["Hidden Person <hidden@x.test>"])
    assert b"idden" not in composed.data
    assert composed.recipients == ("a@x.test", "hidden@x.test")


def test_only_hidden_recipients_are_undisclosed() -> None:
    composed = made(to=[], bcc=["hidden@x.test"])
    assert b"\r\nTo: undisclosed-recipients:;\r\n" in composed.data
    assert b"hidden" not in composed.data
    assert b"\r\nTo:" not in made(to=[], cc=["a@x.test"]).data


def test_each_address_is_served_once_however_its_domain_is_written() -> None:
    composed = made(
        to=["A <a@x.test>", "a@X.test", "A@x.test"],
        cc=["a@örnek.example", "a@xn--rnek-4qa.example"],
        bcc=["Other <a@x.test>", "b@x.test"],
    )
    assert composed.recipients == ("a@x.test", "A@x.test", "a@xn--rnek-4qa.example", "b@x.test")


def test_settled_addresses_are_shown_but_not_served_again() -> None:
    row: dict[str, Any] = {"to": ["a@x.test", "b@x.test"], "cc": ["c@örnek.example", "d@x.test"], "bcc": ["e@x.test"]}
    outcomes = {
        "a@x.test": {"state": "accepted"},
        "b@x.test": {"state": "deferred", "code": "451"},
        "c@XN--RNEK-4QA.example": {"state": "refused", "code": "550"},
        "d@x.test": "accepted",
        "e@x.test": {"state": "accepted"},
        "unknown@x.test": {"state": "accepted"},
        "": {"state": "accepted"},
        "A@x.test": {},
    }
    composed = made(**row, outcomes=outcomes)
    assert composed.recipients == ("b@x.test", "d@x.test")
    assert composed.data == made(**row).data
    assert made(to=["a@x.test"], outcomes={"a@x.test": {"state": "accepted"}}).recipients == ()


def test_letters_outside_ascii_before_the_at_need_smtputf8() -> None:
    composed = made(to=["用户@例子.test", "a@x.test"])
    assert composed.needs_smtputf8
    assert composed.recipients == ("用户@xn--fsqu00a.test", "a@x.test")
    assert "\r\nTo: 用户@xn--fsqu00a.test, a@x.test\r\n".encode() in composed.data
    assert made(to=["a@x.test"], bcc=["用户@例子.test"]).needs_smtputf8
    assert made(to=["a@x.test"], bcc=["用户@例子.test"]).data.isascii()
    assert made(sender="用户@例子.test").needs_smtputf8
    assert made(reply_to=["用户@例子.test"]).needs_smtputf8
    settled = {"用户@xn--fsqu00a.test": {"state": "accepted"}}
    assert made(to=["用户@例子.test", "a@x.test"], outcomes=settled).needs_smtputf8
    assert not made(to=["a@x.test"], bcc=["用户@例子.test"], outcomes=settled).needs_smtputf8


def test_a_row_may_say_that_it_is_not_automatic() -> None:
    assert head(made())["auto-submitted"] == "auto-generated"
    assert made(headers={"auto-submitted": "no"}).data.lower().count(b"auto-submitted") == 1
    assert head(made(headers={"auto-submitted": "no"}))["auto-submitted"] == "no"


def test_long_fields_are_folded_and_urls_and_ids_are_not_broken() -> None:
    url = f"<https://x.test/unsubscribe?token={'t' * 300}>"
    mailto = "<mailto:unsubscribe@x.test?subject=stop>"
    ids = [f"<{number}.{'i' * 60}@mail.x.test>" for number in range(12)]
    composed = made(
        headers={
            "List-Unsubscribe": f"{url}, {mailto}",
            "References": " ".join(ids),
            "In-Reply-To": ids[-1],
            "X-Words": "word " * 100,
            "X-Token": "a" * 900,
            "X-Long": "a" * 3000,
            "X-Script": "ş" * 500,
        }
    )
    lines = composed.data.partition(b"\r\n\r\n")[0].decode().split("\r\n")
    assert f"List-Unsubscribe: {url}," in lines
    assert f" {mailto}" in lines
    assert f"References: {ids[0]}" in lines
    assert all(f" {id_}" in lines for id_ in ids[1:])
    assert f"In-Reply-To: {ids[-1]}" in lines
    assert f"X-Token: {'a' * 900}" in lines
    assert all(len(line) <= 998 and line.strip() for line in lines)
    message = head(composed)
    assert message["x-words"] == ("word " * 100).strip()
    assert message["x-long"] == "a" * 3000
    assert message["x-script"] == "ş" * 500


def test_many_recipients_are_folded_between_them() -> None:
    to = [f"Recipient Number {number} <recipient{number}@example.com>" for number in range(300)]
    composed = made(to=to)
    lines = composed.data.partition(b"\r\n\r\n")[0].split(b"\r\n")
    assert max(map(len, lines)) <= 76
    assert [str(address) for address in head(composed)["to"].addresses] == to


@pytest.mark.parametrize(
    "subject",
    [
        "Order 42",
        "=?utf-8?q?injected?=",
        "a =?utf-8?q?=0D=0ABcc:_x@x.test?= b",
        "word " * 60,
        "x" * 1500,
        "ş" * 700,
        "🌷" * 300,
        "mixed ascii and ünïcödé " * 30,
        "tail: =?",
        'Re: Fwd: [list] (a, b); <c@d> "quoted" \\ back',
        "e\u0301" * 200,
        "",
    ],
)
def test_any_subject_comes_out_as_it_went_in_on_legal_lines(subject: str) -> None:
    composed = made(RenderedContent(subject, "t", None))
    assert head(composed)["subject"] == subject.strip()
    lines = composed.data.partition(b"\r\n\r\n")[0].split(b"\r\n")
    assert all(len(line) <= 76 or b" " not in line.removeprefix(b"Subject: ") for line in lines)
    assert all(len(line) <= 998 for line in lines)
    assert composed.data.isascii()
    for word in composed.data.split():
        if word.startswith(b"=?utf-8?"):
            assert len(word) <= 75
            assert email.header.decode_header(word.decode())[0][0].decode()


def test_line_breaks_in_a_subject_become_spaces() -> None:
    composed = made(RenderedContent("a\r\nBcc: x@x.test\u2028b\x85c\0d\ud800", "t", None))
    assert head(composed)["subject"] == "a Bcc: x@x.test b c d?"
    assert head(composed)["bcc"] is None


def test_a_mail_without_any_content_is_refused() -> None:
    with pytest.raises(ComposeError) as caught:
        made(RenderedContent("S", None, None))
    assert caught.value.code == "empty_content"


def test_a_default_sender_that_is_none_is_the_operators_fault() -> None:
    with pytest.raises(ComposeError, match="default_sender: ") as caught:
        made(default_sender="nobody")
    assert (caught.value.code, caught.value.error_class) == ("invalid_default_sender", ErrorClass.OPERATOR)


def test_attachments_and_content_do_not_change_the_message_id() -> None:
    file = LoadedAttachment("a.txt", "text/plain", b"x")
    with_file = compose(claimed_message(), CONTENT, [file], default_sender="s@x.test", message_id_domain="mail.x.test")
    assert with_file.message_id == made().message_id
    assert hashlib.sha256(with_file.data).digest() != hashlib.sha256(made().data).digest()
