"""What replies mean, without a server."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox_mail.errors import ErrorClass
from outbox_mail.mail.providers.smtp.replies import Reply, Stage, class_of, printable, queue_id, wait_hint_seconds


@pytest.mark.parametrize(
    ("stage", "code", "text", "expected"),
    [
        (Stage.RCPT, 550, "5.1.1 no such user", ErrorClass.PERMANENT),
        (Stage.RCPT, 550, "5.7.1 relaying denied", ErrorClass.PERMANENT),
        (Stage.RCPT, 552, "too many recipients", ErrorClass.TRANSIENT),
        (Stage.RCPT, 552, "5.2.2 mailbox full", ErrorClass.TRANSIENT),
        (Stage.RCPT, 552, "5.3.4 too big", ErrorClass.PERMANENT),
        (Stage.RCPT, 554, "5.7.1 blocked", ErrorClass.PERMANENT),
        (Stage.RCPT, 554, "5.7.1 greylisted, please try again later", ErrorClass.TRANSIENT),
        (Stage.RCPT, 450, "4.2.0 greylisted", ErrorClass.TRANSIENT),
        (Stage.RCPT, 421, "4.7.0 busy", ErrorClass.TRANSIENT),
        (Stage.RCPT, 530, "5.7.0 authenticate", ErrorClass.OPERATOR),
        (Stage.DATA, 552, "5.7.0 forbidden attachment", ErrorClass.PERMANENT),
        (Stage.DATA, 552, "5.2.2 over quota", ErrorClass.TRANSIENT),
        (Stage.DATA, 552, "5.2.3 message exceeds the size limit", ErrorClass.PERMANENT),
        (Stage.DATA, 552, "insufficient system storage", ErrorClass.TRANSIENT),
        (Stage.DATA, 554, "Message rejected: Email address is not verified.", ErrorClass.OPERATOR),
        (Stage.DATA, 554, "5.7.1 message refused as spam", ErrorClass.PERMANENT),
        (Stage.DATA, 550, "The from address does not match a verified Sender Identity.", ErrorClass.OPERATOR),
        (Stage.DATA, 454, "Throttling failure: Daily message quota exceeded.", ErrorClass.TRANSIENT),
        (Stage.MAIL, 550, "5.7.1 relay access denied", ErrorClass.OPERATOR),
        (Stage.MAIL, 501, "5.1.7 bad sender", ErrorClass.PERMANENT),
        (Stage.CONNECT, 554, "no", ErrorClass.OPERATOR),
        (Stage.CONNECT, 421, "busy", ErrorClass.TRANSIENT),
        (Stage.AUTH, 535, "wrong", ErrorClass.OPERATOR),
        (Stage.AUTH, 501, "malformed", ErrorClass.OPERATOR),
        (Stage.AUTH, 432, "4.7.12 transition", ErrorClass.OPERATOR),
        (Stage.AUTH, 454, "4.7.0 temporary", ErrorClass.TRANSIENT),
    ],
)
def test_a_reply_has_the_class_of_its_code_words_and_stage(
    stage: Stage, code: int, text: str, expected: ErrorClass
) -> None:
    assert class_of(Reply(code, text.encode()), stage) is expected


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("4.7.1 Greylisted, try again in 300 seconds", 300),
        ("Greylisted for 5 minutes", 300),
        ("4.2.0 please retry after 2 min", 120),
        ("come back in 00:04:59", 299),
        ("try again in 1 hour", 3600),
        ("try in 5s", 5),
        ("in 999999 hours", 86400),
        ("in 0 seconds", None),
        ("try again later", None),
        ("you sent 300 seconds ago", None),
        ("queue id 5 in 12", None),
    ],
)
def test_a_wish_to_wait_is_read_and_bounded(text: str, seconds: float | None) -> None:
    assert wait_hint_seconds(Reply(451, text.encode())) == seconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2.0.0 Ok: queued as 4F2A1C0B9D", "4F2A1C0B9D"),
        ("OK id=1rXyZ0-0001ab-2c", "1rXyZ0-0001ab-2c"),
        ("Ok 0102018f0a1b2c3d-1a2b3c4d-000000", "0102018f0a1b2c3d-1a2b3c4d-000000"),
        ("2.6.0 <x@y> [InternalId=12345, Hostname=h] Queued mail for delivery", "12345"),
        ("2.0.0 3BK9abcd012345 Message accepted for delivery", "3BK9abcd012345"),
        ("OK", None),
        ("", None),
    ],
)
def test_the_servers_name_for_the_mail_is_found_if_it_tells(text: str, expected: str | None) -> None:
    assert queue_id(Reply(250, text.encode())) == expected


@given(st.binary(max_size=5000))
def test_no_words_of_a_server_break_the_reading(raw: bytes) -> None:
    reply = Reply(550, raw)
    assert reply.text.isprintable()
    assert len(reply.text) <= 300
    assert len(queue_id(reply) or "") <= 128
    wait_hint_seconds(reply)
    for stage in Stage:
        class_of(reply, stage)


def test_printable_keeps_words_in_any_script() -> None:
    assert printable("Günaydın,\r\n 世界") == "Günaydın, 世界"
