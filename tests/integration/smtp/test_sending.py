"""The SMTP client against a sink that behaves."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outbox_mail.errors import ErrorClass, ProviderError
from outbox_mail.mail.providers.base import Deadline, Provider, State
from outbox_mail.testing.mails import composed_mail
from outbox_mail.testing.sink import Behaviour, Fault, Sink, Step, Way


def soon() -> Deadline:
    return Deadline.after(10)


@pytest.fixture(params=["pipelined", "step by step"])
def either(request: pytest.FixtureRequest, sink: Sink, connect: Callable[[str], Provider]) -> Provider:
    """The provider, once with PIPELINING and once without."""
    if request.param == "step by step":
        sink.behaviour.extensions = tuple(each for each in sink.behaviour.extensions if each != "PIPELINING")
    return connect(sink.url)


def test_a_mail_arrives_as_it_was_composed(either: Provider, sink: Sink) -> None:
    mail = composed_mail("a@example.com", "b@example.com", body=b".\r\n..\r\n.x\r\n\r\nlast\r\n")
    result = either.send(mail, soon())
    assert {address: outcome.state for address, outcome in result.outcomes.items()} == {
        "a@example.com": State.ACCEPTED,
        "b@example.com": State.ACCEPTED,
    }
    assert result.provider_message_id == "SINK00000001"
    [accepted] = sink.accepted
    assert accepted.data == mail.data
    assert accepted.message_id == mail.message_id
    assert accepted.sender == mail.envelope_sender
    assert accepted.recipients == ("a@example.com", "b@example.com")


def test_the_null_sender_is_sent_as_such(either: Provider, sink: Sink) -> None:
    either.send(composed_mail(sender=""), soon())
    assert sink.accepted[0].sender == ""


def test_a_refused_recipient_is_reported_and_the_rest_is_delivered(either: Provider, sink: Sink) -> None:
    result = either.send(composed_mail("refused@example.com", "greylisted@example.com", "ok@example.com"), soon())
    states = {address: (outcome.state, outcome.code) for address, outcome in result.outcomes.items()}
    assert states == {
        "refused@example.com": (State.REFUSED, "550"),
        "greylisted@example.com": (State.DEFERRED, "451"),
        "ok@example.com": (State.ACCEPTED, ""),
    }
    assert result.outcomes["refused@example.com"].text == "5.1.1 <refused@example.com>: no such user here"
    assert result.retry_after_seconds == 1
    assert sink.accepted[0].recipients == ("ok@example.com",)


def test_when_all_recipients_are_refused_nothing_is_sent_and_the_next_mail_passes(either: Provider, sink: Sink) -> None:
    result = either.send(composed_mail("refused@example.com", "deferred@example.com"), soon())
    assert {outcome.state for outcome in result.outcomes.values()} == {State.REFUSED, State.DEFERRED}
    assert result.provider_message_id is None
    assert sink.accepted == []
    either.send(composed_mail(), soon())
    assert len(sink.accepted) == 1
    assert sink.connections == 1


def test_a_server_that_wants_the_body_of_a_mail_to_nobody_gets_only_the_dot(
    behaviour: Behaviour, sink: Sink, provider: Provider
) -> None:
    behaviour.faults.append(Fault(Step.DATA, Way.REPLY, b"354 go ahead\r\n"))
    result = provider.send(composed_mail("refused@example.com"), soon())
    assert result.outcomes["refused@example.com"].state is State.REFUSED
    provider.send(composed_mail(), soon())
    assert len(sink.accepted) == 1
    assert sink.connections == 1


def test_one_connection_carries_many_mails(either: Provider, sink: Sink) -> None:
    for _ in range(20):
        either.send(composed_mail(), soon())
    assert len(sink.accepted) == 20
    assert sink.connections == 1


def test_a_connection_carries_no_more_mails_than_allowed(sink: Sink, connect: Callable[[str], Provider]) -> None:
    provider = connect(f"{sink.url}&max_mails=3")
    for _ in range(7):
        provider.send(composed_mail(), soon())
    assert sink.connections == 3


def test_a_connection_that_idled_too_long_is_not_used_again(sink: Sink, connect: Callable[[str], Provider]) -> None:
    provider = connect(f"{sink.url}&keep_seconds=0")
    provider.send(composed_mail(), soon())
    provider.send(composed_mail(), soon())
    assert sink.connections == 2


def test_more_recipients_than_fit_into_one_write_are_all_served(either: Provider, sink: Sink) -> None:
    addresses = [f"{'refused' if number % 50 == 0 else 'r'}{number}@example.com" for number in range(487)]
    result = either.send(composed_mail(*addresses), soon())
    assert list(result.outcomes) == addresses
    assert sum(outcome.state is State.ACCEPTED for outcome in result.outcomes.values()) == 477
    assert len(sink.accepted[0].recipients) == 477


def test_too_many_recipients_for_the_server_are_deferred(behaviour: Behaviour, provider: Provider) -> None:
    behaviour.replies["b@example.com"] = b"452 4.5.3 too many recipients\r\n"
    behaviour.replies["c@example.com"] = b"552 too many recipients\r\n"
    result = provider.send(composed_mail("a@example.com", "b@example.com", "c@example.com"), soon())
    assert [outcome.state for outcome in result.outcomes.values()] == [State.ACCEPTED, State.DEFERRED, State.DEFERRED]


def test_a_mail_above_the_servers_size_is_refused_before_it_is_sent(
    behaviour: Behaviour, sink: Sink, provider: Provider
) -> None:
    behaviour.extensions = ("PIPELINING", "SIZE 1000")
    with pytest.raises(ProviderError, match="1000 at most") as caught:
        provider.send(composed_mail(body=b"x" * 70 + b"\r\n" + b"y" * 1000 + b"\r\n"), soon())
    assert (caught.value.code, caught.value.error_class) == ("message_too_large", ErrorClass.PERMANENT)
    provider.send(composed_mail(), soon())
    assert len(sink.accepted) == 1


@pytest.mark.parametrize("offer", ["SIZE", "SIZE 0", "SIZE nonsense", "SIZE 99999999999999999999999999"])
def test_a_size_without_a_limit_limits_nothing(
    offer: str, behaviour: Behaviour, sink: Sink, provider: Provider
) -> None:
    behaviour.extensions = ("PIPELINING", offer)
    provider.send(composed_mail(), soon())
    assert len(sink.accepted) == 1


def test_eight_bit_data_is_declared_where_offered_and_refused_where_not(
    behaviour: Behaviour, sink: Sink, provider: Provider, connect: Callable[[str], Provider]
) -> None:
    mail = composed_mail(body="Günaydın\r\n".encode())
    provider.send(mail, soon())
    assert sink.accepted[0].data == mail.data
    behaviour.extensions = ("PIPELINING",)
    with pytest.raises(ProviderError, match="8BITMIME") as caught:
        connect(sink.url).send(mail, soon())
    assert (caught.value.code, caught.value.error_class) == ("8bitmime_not_supported", ErrorClass.PERMANENT)


def test_an_address_in_utf8_travels_where_offered_and_is_a_permanent_error_where_not(
    behaviour: Behaviour, sink: Sink, provider: Provider, connect: Callable[[str], Provider]
) -> None:
    mail = composed_mail("çiçek@example.com", needs_smtputf8=True)
    provider.send(mail, soon())
    assert sink.accepted[0].recipients == ("çiçek@example.com",)
    behaviour.extensions = ("PIPELINING", "8BITMIME")
    with pytest.raises(ProviderError, match="SMTPUTF8") as caught:
        connect(sink.url).send(mail, soon())
    assert (caught.value.code, caught.value.error_class) == ("smtputf8_not_supported", ErrorClass.PERMANENT)


def test_smtputf8_is_not_asked_for_without_need(behaviour: Behaviour, sink: Sink, provider: Provider) -> None:
    behaviour.extensions = ("SIZE 1000000",)
    provider.send(composed_mail(), soon())
    assert len(sink.accepted) == 1


def test_a_server_that_knows_only_helo_gets_mail(behaviour: Behaviour, sink: Sink, provider: Provider) -> None:
    behaviour.extensions = ()
    provider.send(composed_mail(), soon())
    provider.send(composed_mail("refused@example.com", "ok@example.com"), soon())
    assert len(sink.accepted) == 2


@pytest.mark.parametrize(
    "address",
    [
        "a@example.com>\r\nRCPT TO:<evil@example.com",
        "a@example.com> NOTIFY=NEVER",
        "a@example.com\n",
        "a b@example.com",
        "a@exa mple.com",
        "a\x00@example.com",
        "a\x85b@example.com",
        "a\u2028b@example.com",
        "a@example.com, b@example.com",
        "<a@example.com>",
        "no-at-sign",
        "@example.com",
        "a@",
        "a@bücher.example",
        "a" * 400 + "@example.com",
        '"a\r\nb"@example.com',
        '"unclosed@example.com',
        "",
    ],
)
def test_an_address_that_could_carry_a_command_is_refused_alone(address: str, sink: Sink, provider: Provider) -> None:
    result = provider.send(composed_mail(address, "ok@example.com"), soon())
    assert result.outcomes[address].state is State.REFUSED
    assert result.outcomes[address].code == "invalid_address"
    assert result.outcomes["ok@example.com"].state is State.ACCEPTED
    assert sink.accepted[0].recipients == ("ok@example.com",)
    if address:
        with pytest.raises(ProviderError, match="envelope sender") as caught:
            provider.send(composed_mail(sender=address), soon())
        assert (caught.value.code, caught.value.error_class) == ("invalid_sender", ErrorClass.PERMANENT)


@pytest.mark.parametrize(
    "address", ['"a b"@example.com', '"a>b\\"c"@example.com', "a@[192.0.2.1]", "o'brien+x@example.com"]
)
def test_unusual_but_legal_addresses_pass(address: str, sink: Sink, provider: Provider) -> None:
    provider.send(composed_mail(address), soon())
    assert sink.accepted[0].recipients == (address,)


@pytest.mark.parametrize("body", [b"a\nb\r\n", b"a\rb\r\n", b"a\r\n.\nMAIL FROM:<x@y>\r\n", b"a\r\n\r.\r\n"])
def test_a_lone_line_end_is_refused_because_a_second_mail_could_hide_behind_it(
    body: bytes, sink: Sink, provider: Provider
) -> None:
    with pytest.raises(ProviderError, match="lone CR or LF") as caught:
        provider.send(composed_mail(body=body), soon())
    assert (caught.value.code, caught.value.error_class) == ("bare_line_end", ErrorClass.PERMANENT)
    assert sink.accepted == []


_lines = st.lists(st.one_of(st.sampled_from([b"", b".", b"..", b".a", b"a."]), st.binary(max_size=20)), max_size=8)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=_lines, ends=st.booleans())
def test_any_body_arrives_unchanged(lines: list[bytes], ends: bool, sink: Sink, provider: Provider) -> None:
    body = b"\r\n".join(line.translate(None, b"\r\n") for line in lines) + (b"\r\n" if ends else b"")
    mail = dataclasses.replace(composed_mail(), data=body)
    provider.send(mail, soon())
    assert sink.accepted[-1].data == (body if body.endswith(b"\r\n") else body + b"\r\n")


def test_a_large_mail_travels_whole(sink: Sink, provider: Provider) -> None:
    mail = composed_mail(body=(b"." + b"x" * 75 + b"\r\n") * 130_000)
    provider.send(mail, Deadline.after(30))
    assert sink.accepted[0].data == mail.data
