"""Composed mails through the SMTP provider and a real SMTP server: they arrive as they were composed."""

from __future__ import annotations

import email
import re
from collections.abc import Iterator
from email.policy import default
from typing import Any, Final
from uuid import uuid4

import pytest

from outbox_mail.errors import ErrorClass, ProviderError
from outbox_mail.mail.compose import LoadedAttachment, RenderedContent, compose
from outbox_mail.mail.providers.base import Composed, Deadline, Provider
from outbox_mail.mail.providers.registry import provider_from_url
from outbox_mail.testing.messages import claimed_message
from outbox_mail.testing.sink import Behaviour, Sink

CONTENTS: Final = [
    RenderedContent("Plain", "Hello\n", None),
    RenderedContent("Dots", ".\n..\n.leading\n\n.\n", "<p>\n.\n</p>"),
    RenderedContent("ş" * 100, "Merhaba\r.\r\n.\n", "<p>ş</p>\n.\n"),
    RenderedContent("Long", "x" * 998 + "\n" + "." * 998, "y" * 5000),
    RenderedContent("From", "From the shop\n.From\n", "é\nFrom the shop\n" * 100),
    RenderedContent("漢字", "漢字\n" * 1000, "<p>漢字</p>" * 1000),
    RenderedContent("Blanks", "a \nb\t\n \n", "é \n\t\n"),
    RenderedContent("Base64", "漢字", None),
    RenderedContent("QP", "é" + "a" * 100, None),
    RenderedContent("End", "no line end at the end", "é"),
]
FILES: Final = [
    LoadedAttachment("ğüş.bin", "application/octet-stream", bytes(range(256)) * 1000),
    LoadedAttachment("logo.png", "image/png", b"\r\n.\r\n", "logo"),
]


@pytest.fixture
def sink() -> Iterator[Sink]:
    """A sink that was spoken to as the RFCs say, or the test fails."""
    with Sink(Behaviour()) as sink:
        yield sink
    assert sink.violations == []


@pytest.fixture
def provider(sink: Sink) -> Iterator[Provider]:
    """An SMTP provider that leads to the sink."""
    provider = provider_from_url(sink.url)
    yield provider
    provider.close()


def made(content: RenderedContent, files: list[LoadedAttachment], **row: Any) -> Composed:
    return compose(
        claimed_message(id=uuid4(), **row), content, files, default_sender="s@x.test", message_id_domain="mail.x.test"
    )


@pytest.mark.parametrize("files", [[], FILES], ids=["alone", "with files"])
def test_awkward_mails_arrive_byte_by_byte(files: list[LoadedAttachment], provider: Provider, sink: Sink) -> None:
    mails = [made(content, files) for content in CONTENTS]
    for mail in mails:
        provider.send(mail, Deadline.after(10))
    assert [accepted.data for accepted in sink.accepted] == [mail.data for mail in mails]
    assert [accepted.message_id for accepted in sink.accepted] == [mail.message_id for mail in mails]


def test_the_envelope_arrives_as_it_was_composed(provider: Provider, sink: Sink) -> None:
    mail = made(
        CONTENTS[0],
        [],
        to=["Ayşe <ayse@örnek.example>", '"quoted local"@x.test'],
        cc=["AYSE@x.test"],
        bcc=["hidden@x.test", "Ayşe <ayse@ÖRNEK.example>"],
    )
    provider.send(mail, Deadline.after(10))
    [accepted] = sink.accepted
    assert accepted.recipients == (
        "ayse@xn--rnek-4qa.example",
        '"quoted local"@x.test',
        "AYSE@x.test",
        "hidden@x.test",
    )
    assert accepted.sender == "s@x.test"
    assert b"hidden" not in accepted.data


def test_an_address_in_utf8_goes_where_smtputf8_is_offered_and_fails_for_good_elsewhere(
    provider: Provider, sink: Sink
) -> None:
    sink.behaviour.extensions = (*(each for each in sink.behaviour.extensions if each != "SMTPUTF8"), "SMTPUTF8")
    mail = made(CONTENTS[0], [], to=["用户@例子.test"])
    provider.send(mail, Deadline.after(10))
    assert sink.accepted[0].recipients == ("用户@xn--fsqu00a.test",)
    shown = email.message_from_bytes(sink.accepted[0].data, policy=default)["to"]
    assert str(shown) == "用户@xn--fsqu00a.test"
    provider.close()
    sink.behaviour.extensions = tuple(each for each in sink.behaviour.extensions if each != "SMTPUTF8")
    with pytest.raises(ProviderError) as caught:
        provider.send(mail, Deadline.after(10))
    assert (caught.value.code, caught.value.error_class) == ("smtputf8_not_supported", ErrorClass.PERMANENT)


def test_a_second_attempt_carries_the_same_bytes(provider: Provider, sink: Sink) -> None:
    sink.behaviour.greylist_times = 1
    row: dict[str, Any] = {"to": ["greylisted@x.test", "ok@x.test"], "id": uuid4()}
    first = compose(
        claimed_message(**row), CONTENTS[0], FILES, default_sender="s@x.test", message_id_domain="mail.x.test"
    )
    result = provider.send(first, Deadline.after(10))
    outcomes = {address: {"state": outcome.state.value} for address, outcome in result.outcomes.items()}
    second = compose(
        claimed_message(**row, outcomes=outcomes, claims=2, attempt_count=1),
        CONTENTS[0],
        FILES,
        default_sender="s@x.test",
        message_id_domain="mail.x.test",
    )
    assert second.recipients == ("greylisted@x.test",)
    provider.send(second, Deadline.after(10))
    assert [accepted.recipients for accepted in sink.accepted] == [("ok@x.test",), ("greylisted@x.test",)]
    assert sink.accepted[0].data == sink.accepted[1].data
    assert re.search(rb"\r\nTo: greylisted@x.test, ok@x.test\r\n", sink.accepted[1].data)
