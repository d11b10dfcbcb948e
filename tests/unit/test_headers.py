"""Which header fields a producer may add, and what may stand in them."""

from __future__ import annotations

import time
from typing import Any

import pytest

from outbox_mail.errors import InvalidRequestError
from outbox_mail.mail.headers import MAX_HEADERS, MAX_VALUE, checked_headers


@pytest.mark.parametrize(
    ("headers", "stored"),
    [
        (None, {}),
        ({}, {}),
        ({"X-Campaign": " spring \t  2026 "}, {"X-Campaign": "spring 2026"}),
        ({"X-Şehir".replace("Ş", "S"): "İstanbul 🌷"}, {"X-Sehir": "İstanbul 🌷"}),
        ({"X-A": "=?utf-8?q?a?="}, {"X-A": "=?utf-8?q?a?="}),
        (
            {"List-Unsubscribe": "<https://x.test/u?a=?b>, <mailto:u@x.test?subject=stop>"},
            {"List-Unsubscribe": "<https://x.test/u?a=?b>, <mailto:u@x.test?subject=stop>"},
        ),
        (
            {"List-Unsubscribe-Post": "List-Unsubscribe=One-Click"},
            {"List-Unsubscribe-Post": "List-Unsubscribe=One-Click"},
        ),
        ({"References": "<a@x.test>   <b@x.test>"}, {"References": "<a@x.test> <b@x.test>"}),
        ({"Auto-Submitted": "no"}, {"Auto-Submitted": "no"}),
        ({"List-Id": "News <news.x.test>"}, {"List-Id": "News <news.x.test>"}),
        ({"List-Post": "NO"}, {"List-Post": "NO"}),
        ({"List-Post": "<mailto:a@x.test>"}, {"List-Post": "<mailto:a@x.test>"}),
        ({"Disposition-Notification-To": "Ada <a@x.test>"}, {"Disposition-Notification-To": "Ada <a@x.test>"}),
        ({"Auto-Submitted": "auto-replied; owner=a"}, {"Auto-Submitted": "auto-replied; owner=a"}),
        ({"Auto-Submitted": "auto-replied;a=b; c=d"}, {"Auto-Submitted": "auto-replied;a=b; c=d"}),
        ({"X-SMTPAPI": '{"category": ["a", "b"]}'}, {"X-SMTPAPI": '{"category": ["a", "b"]}'}),
    ],
)
def test_a_row_holds_the_headers_trimmed(headers: Any, stored: dict[str, str]) -> None:
    assert checked_headers("headers", headers) == stored


@pytest.mark.parametrize("name", ["From", "TO", "cc", "Bcc", "bCC", "Subject", "Date", "Message-Id", "MIME-Version"])
@pytest.mark.parametrize("value", ["x"])
def test_what_the_composer_writes_can_not_be_set(name: str, value: str) -> None:
    with pytest.raises(InvalidRequestError, match="can't be set here") as caught:
        checked_headers("headers", {name: value})
    assert caught.value.field == f"headers[{name!r}]"


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("Sender", "argument sender"),
        ("Reply-To", "argument reply_to"),
        ("Subject", "subject.txt"),
        ("Date", "send_at"),
        ("Apparently-To", "argument bcc"),
        ("Content-Type", "attachments decide"),
        ("content-transfer-encoding", "attachments decide"),
        ("Resent-Bcc", "forwarded"),
        ("Received", "servers"),
        ("Received-SPF", "servers"),
        ("Return-Path", "servers"),
        ("DKIM-Signature", "servers"),
        ("ARC-Seal", "servers"),
        ("Authentication-Results", "servers"),
    ],
)
def test_the_error_says_what_to_use_instead(name: str, advice: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        checked_headers("headers", {name: "x"})
    assert advice in caught.value.advice


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "X A",
        "X-A ",
        " X-A",
        "X-A:",
        "X:A",
        "X-A\r\nBcc",
        "X\0",
        "X-Ş",
        "X-\u2028",
        "(X)",
        "x" * 77,
        "-X",
        "X\t",
    ],
)
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequestError, match="not the name of a header field") as caught:
        checked_headers("headers", {name: "x"})
    assert caught.value.field.startswith("headers[")
    assert caught.value.field.isprintable()


@pytest.mark.parametrize("bad", [*"\r\n\v\f\x1c\x1d\x1e\x85\u2028\u2029\0\x1b\x7f\x80\ud800", "\r\n ", "\r\n\t"])
def test_a_line_break_or_control_character_of_any_kind_is_refused(bad: str) -> None:
    for value in (f"a{bad}Bcc: b@x.test", f"{bad}a", f"a{bad}"):
        with pytest.raises(InvalidRequestError, match="line break"):
            checked_headers("headers", {"X-A": value})


@pytest.mark.parametrize(
    "value",
    [
        "=?utf-8?q?a=0D=0ABcc:_b@x.test?=",
        "=?UTF-8?Q?a=0a?=",
        "=?utf-8?b?DQpCY2M6IGI=?=",
        "=?utf-8?q?=E2=80=A8?=",
        "=?utf-8?q?=C2=85?=",
        "=?utf-7?q?+AAo-?=",
        "=?utf-16be?b?AAo=?=",
        "=?unicode_escape?q?=0A?=",
        "=?x-unknown?q?=0A?=",
        "=?utf-8*tr?q?=0D?=",
        "=?ş?q?=0A?=",
        "=??q?=00?=",
        "=?bad?b?a?= =?utf-8?q?fine?= text =?utf-8?q?=0A?=",
    ],
)
def test_a_line_break_is_found_behind_an_encoded_word(value: str) -> None:
    with pytest.raises(InvalidRequestError, match="hides a line break") as caught:
        checked_headers("headers", {"X-A": value})
    assert caught.value.field == "headers['X-A']"


@pytest.mark.parametrize(
    "value", ["=?utf-8?q?a_b=3F?=", "=?utf-8?b?a?=", "=?x-unknown?q?a?=", "=?ş?q?a?=", "a =?b? c", "=?utf-8?q?=C5=9F?="]
)
def test_a_harmless_look_alike_stays_the_text_it_is(value: str) -> None:
    assert checked_headers("headers", {"X-A": value}) == {"X-A": value}


@pytest.mark.parametrize(
    ("headers", "problem"),
    [
        ("X-A: b", "str is not a mapping"),
        ([("X-A", "b")], "list is not a mapping"),
        ({5: "b"}, "a name that is int"),
        ({None: "b"}, "a name that is NoneType"),
        ({"X-A": None}, "NoneType is not text"),
        ({"X-A": 5}, "int is not text"),
        ({"X-A": ["b"]}, "list is not text"),
        ({"X-A": b"b"}, "bytes is not text"),
        ({"X-A": ""}, "empty"),
        ({"X-A": " \t"}, "empty"),
        ({"X-A": "a", "x-a": "b"}, "twice"),
        ({"X-A": "a" * (MAX_VALUE + 1)}, "characters"),
        ({f"X-{number}": "a" for number in range(MAX_HEADERS + 1)}, "there are 51"),
        ({"List-Unsubscribe": "https://x.test/u"}, "form"),
        ({"List-Unsubscribe": "<https://x.test/u> <mailto:a@x.test>"}, "form"),
        ({"List-Unsubscribe": "<https://x.test/a b>"}, "form"),
        ({"List-Unsubscribe": "<https://örnek.example/>"}, "ASCII"),
        ({"List-Unsubscribe": "<=?utf-8?q?=0D=0ABcc:a@x.test?=>"}, "hides a line break"),
        ({"List-Unsubscribe": f"<https://x.test/{'a' * 900}>"}, "900 characters without a space"),
        ({"List-Unsubscribe-Post": "yes"}, "form"),
        ({"In-Reply-To": "a@x.test"}, "form"),
        ({"References": "<a@x.test>, <b@x.test>"}, "form"),
        ({"References": "<=?utf-8?b?YQ==?=@x.test>"}, "form"),
        ({"Auto-Submitted": "Ja!"}, "form"),
        ({"Auto-Submitted": "no;;"}, "form"),
        ({"List-Id": "News"}, "form"),
        ({"List-Id": "Bülten <news.x.test>"}, "ASCII"),
        ({"List-Post": "no"}, "form"),
        ({"Disposition-Notification-To": "Ayşe <a@x.test>"}, "ASCII"),
        ({"Errors-To": "=?utf-8?q?a?= <a@x.test>"}, "form"),
    ],
)
def test_what_can_not_be_sent_is_refused_with_the_reason(headers: Any, problem: str) -> None:
    with pytest.raises(InvalidRequestError, match=problem) as caught:
        checked_headers("headers", headers)
    assert caught.value.field.startswith("headers")
    assert caught.value.advice


@pytest.mark.parametrize(
    "name", ["X-A", "References", "List-Unsubscribe", "List-Id", "List-Post", "Auto-Submitted", "Errors-To"]
)
@pytest.mark.parametrize(
    "piece",
    [
        "<",
        "<a>",
        "<a> ",
        "<a>,",
        "=?",
        "=?a?q?",
        "=?a?q?=?= ",
        "=?a?q?b?=",
        "=?punycode?q?a-9?=",
        "a; ",
        "; ",
        ";",
        ";a",
        " ",
        "a",
    ],
)
@pytest.mark.parametrize(("start_of_it", "end_of_it"), [("", ""), ("a", " x y"), ("<a>", "<")])
def test_hostile_values_are_judged_quickly(name: str, piece: str, start_of_it: str, end_of_it: str) -> None:
    value = start_of_it + (piece * MAX_VALUE)[: MAX_VALUE - len(start_of_it) - len(end_of_it)] + end_of_it
    start = time.process_time()
    for _ in range(10):
        try:
            checked_headers("headers", {name: value})
        except InvalidRequestError:
            continue
    assert time.process_time() - start < 0.2
