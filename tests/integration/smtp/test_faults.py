"""Servers that fail, stall, lie and babble: each ends within the deadline, in the right class."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Callable

import pytest

from outbox_mail.errors import ErrorClass, ProviderError
from outbox_mail.mail.providers.base import Deadline, Provider, State
from outbox_mail.mail.providers.smtp.provider import SmtpProvider
from outbox_mail.testing.mails import composed_mail
from outbox_mail.testing.sink import Fault, Sink, Step, Way

Connect = Callable[[str], Provider]
BEFORE_THE_BODY = [Step.CONNECT, Step.EHLO, Step.MAIL, Step.RCPT, Step.DATA]
AFTER_THE_DOT = [Step.END, Step.ACCEPTED]
LARGE = (b"x" * 76 + b"\r\n") * 300_000


def failure(provider: Provider, seconds: float = 5.0, body: bytes = b"Hello.\r\n") -> ProviderError:
    """The error of one send, which must come before its deadline is long past."""
    began = time.monotonic()
    with pytest.raises(ProviderError) as caught:
        provider.send(composed_mail(body=body), Deadline.after(seconds))
    assert time.monotonic() - began < seconds + 1
    return caught.value


@pytest.fixture(params=["pipelined", "step by step"])
def either(request: pytest.FixtureRequest, sink: Sink, connect: Connect) -> Provider:
    """The provider, once with PIPELINING and once without."""
    return connect(sink.url if request.param == "pipelined" else f"{sink.url}&pipelining=false")


def test_a_server_that_is_not_there_is_transient(connect: Connect) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        error = failure(connect(f"smtp://127.0.0.1:{taken.getsockname()[1]}"))
    assert (error.code, error.error_class) == ("smtp_connect_failed", ErrorClass.TRANSIENT)


def test_a_host_name_that_does_not_exist_is_the_operators_fault(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_args: object, **_named: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    error = failure(connect("smtp://mail.invalid"))
    assert (error.code, error.error_class) == ("smtp_host_unknown", ErrorClass.OPERATOR)


def test_a_resolver_that_hangs_does_not_outlast_the_deadline(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_named: [answer.wait(10)][:0])
    error = failure(connect("smtp://mail.example"), seconds=0.2)
    answer.set()
    assert (error.code, error.error_class) == ("smtp_connect_failed", ErrorClass.TRANSIENT)


def test_an_address_that_swallows_packets_leaves_time_for_the_next(
    sink: Sink, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as deaf, socket.socket() as filler:
        # A listener whose queue is full answers nothing, like a firewall that drops.
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        filler.connect(deaf.getsockname())
        answers = [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", deaf.getsockname()),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", sink.port)),
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_named: answers)
        connect(f"smtp://mail.example:{sink.port}?tls=none").send(composed_mail(), Deadline.after(2))
    assert len(sink.accepted) == 1


@pytest.mark.parametrize("step", [*BEFORE_THE_BODY, *AFTER_THE_DOT])
def test_421_anywhere_is_transient_and_the_next_mail_takes_a_new_connection(
    step: Step, either: Provider, sink: Sink
) -> None:
    sink.behaviour.faults.append(Fault(step, Way.REPLY_AND_CLOSE, b"421 4.3.2 shutting down\r\n"))
    error = failure(either)
    assert (error.code, error.error_class) == ("smtp_421", ErrorClass.TRANSIENT)
    either.send(composed_mail(), Deadline.after(5))
    assert sink.connections == 2


@pytest.mark.parametrize("step", BEFORE_THE_BODY)
def test_a_connection_lost_before_the_body_is_transient(step: Step, either: Provider, sink: Sink) -> None:
    sink.behaviour.faults.append(Fault(step, Way.CLOSE))
    error = failure(either)
    assert (error.code, error.error_class) == ("smtp_connection_lost", ErrorClass.TRANSIENT)
    assert sink.accepted == []


@pytest.mark.parametrize("step", BEFORE_THE_BODY)
def test_silence_before_the_body_is_transient_at_the_deadline(step: Step, either: Provider, sink: Sink) -> None:
    sink.behaviour.faults.append(Fault(step, Way.SILENCE))
    error = failure(either, seconds=0.3)
    assert (error.code, error.error_class) == ("timeout", ErrorClass.TRANSIENT)


@pytest.mark.parametrize("way", [Way.CLOSE, Way.SILENCE])
@pytest.mark.parametrize("step", AFTER_THE_DOT)
def test_a_connection_lost_or_silent_after_the_dot_leaves_the_outcome_unknown(
    step: Step, way: Way, either: Provider, sink: Sink
) -> None:
    sink.behaviour.faults.append(Fault(step, way))
    error = failure(either, seconds=0.5)
    assert (error.code, error.error_class) == ("outcome_unknown", ErrorClass.UNKNOWN)
    assert len(sink.accepted) == (1 if step is Step.ACCEPTED else 0)


@pytest.mark.parametrize("step", AFTER_THE_DOT)
def test_an_unknown_outcome_on_a_kept_connection_is_not_repeated(step: Step, either: Provider, sink: Sink) -> None:
    either.send(composed_mail(), Deadline.after(5))
    sink.behaviour.faults.append(Fault(step, Way.CLOSE))
    error = failure(either)
    assert error.error_class is ErrorClass.UNKNOWN
    assert sink.connections == 1


def test_a_large_body_cut_off_in_the_middle_is_transient(provider: Provider, sink: Sink) -> None:
    sink.behaviour.faults.append(Fault(Step.BODY, Way.CLOSE))
    error = failure(provider, body=LARGE)
    assert (error.code, error.error_class) == ("smtp_connection_lost", ErrorClass.TRANSIENT)


def test_a_large_body_that_the_server_stops_reading_is_transient(provider: Provider, sink: Sink) -> None:
    sink.behaviour.faults.append(Fault(Step.BODY, Way.DELAY, seconds=3))
    error = failure(provider, seconds=0.4, body=LARGE)
    assert (error.code, error.error_class) == ("timeout", ErrorClass.TRANSIENT)


def test_a_refusal_in_the_middle_of_the_body_is_heard(provider: Provider, sink: Sink) -> None:
    sink.behaviour.faults.append(Fault(Step.BODY, Way.REPLY_AND_CLOSE, b"552 5.3.4 too large\r\n"))
    error = failure(provider, body=LARGE)
    assert (error.code, error.error_class) == ("smtp_552", ErrorClass.PERMANENT)


@pytest.mark.parametrize("step", [Step.MAIL, Step.RCPT, Step.DATA, Step.RSET])
def test_a_kept_connection_that_breaks_before_the_body_is_replaced_unseen(
    step: Step, either: Provider, sink: Sink
) -> None:
    # All recipients refused: the next mail begins with RSET.
    either.send(composed_mail("refused@example.com"), Deadline.after(5))
    sink.behaviour.faults.append(Fault(step, Way.CLOSE))
    either.send(composed_mail(), Deadline.after(5))
    assert len(sink.accepted) == 1
    assert sink.connections == 2


def test_a_fresh_connection_that_breaks_is_not_tried_again(either: Provider, sink: Sink) -> None:
    sink.behaviour.faults.append(Fault(Step.MAIL, Way.CLOSE, times=None))
    failure(either)
    assert sink.connections == 1


@pytest.mark.parametrize("last_words", [b"", b"421 4.4.2 idle for too long\r\n"])
def test_a_kept_connection_that_the_server_closed_while_idle_is_replaced_unseen(
    last_words: bytes, either: Provider, sink: Sink
) -> None:
    either.send(composed_mail(), Deadline.after(5))
    sink.drop_connections(last_words)
    either.send(composed_mail(), Deadline.after(5))
    assert len(sink.accepted) == 2


def test_421_as_the_first_word_on_a_kept_connection_is_its_end_and_not_the_mails(either: Provider, sink: Sink) -> None:
    either.send(composed_mail(), Deadline.after(5))
    sink.behaviour.faults.append(Fault(Step.MAIL, Way.REPLY_AND_CLOSE, b"421 4.4.2 idle for too long\r\n"))
    either.send(composed_mail(), Deadline.after(5))
    assert (len(sink.accepted), sink.connections) == (2, 2)


def test_a_reply_that_nobody_asked_for_is_never_taken_for_the_next_mails(either: SmtpProvider, sink: Sink) -> None:
    sink.behaviour.faults.append(Fault(Step.REPLIED, Way.REPLY, b"250 2.0.0 surprise\r\n"))
    either.send(composed_mail(), Deadline.after(5))
    wire = either._idle[0]._ready.wire
    if not wire._buffer:
        assert select.select([wire._socket], [], [], 5)[0]
    either.send(composed_mail("refused@example.com"), Deadline.after(5))
    assert sink.connections == 2


def test_a_connection_idle_for_a_while_is_asked_and_replaced_when_it_does_not_answer(
    either: Provider, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outbox_mail.mail.providers.smtp.session._NOOP_AFTER_SECONDS", 0.0)
    either.send(composed_mail(), Deadline.after(5))
    either.send(composed_mail(), Deadline.after(5))
    assert sink.connections == 1
    sink.behaviour.faults.append(Fault(Step.NOOP, Way.SILENCE))
    began = time.monotonic()
    either.send(composed_mail(), Deadline.after(1))
    assert time.monotonic() - began < 1
    assert (len(sink.accepted), sink.connections) == (3, 2)


@pytest.mark.parametrize("way", [Way.CLOSE, Way.SILENCE, Way.REPLY_AND_CLOSE])
def test_a_failing_quit_after_acceptance_is_success(way: Way, sink: Sink, connect: Connect) -> None:
    sink.behaviour.faults.append(Fault(Step.QUIT, way, b"451 can't\r\n", times=None))
    provider = connect(f"{sink.url}&max_mails=1")
    for _ in range(3):
        assert provider.send(composed_mail(), Deadline.after(5)).provider_message_id
    provider.close()
    provider.close()
    provider.send(composed_mail(), Deadline.after(5))
    assert len(sink.accepted) == 4


def test_a_connection_closed_right_after_the_final_reply_is_success(either: Provider, sink: Sink) -> None:
    sink.behaviour.faults.append(Fault(Step.REPLIED, Way.CLOSE))
    for _ in range(2):
        either.send(composed_mail(), Deadline.after(5))
    assert (len(sink.accepted), sink.connections) == (2, 2)


@pytest.mark.parametrize(
    ("step", "error_class"),
    [
        (Step.CONNECT, ErrorClass.TRANSIENT),
        (Step.EHLO, ErrorClass.TRANSIENT),
        (Step.MAIL, ErrorClass.TRANSIENT),
        (Step.ACCEPTED, ErrorClass.UNKNOWN),
    ],
)
def test_a_server_that_drips_cannot_stretch_the_deadline(
    step: Step, error_class: ErrorClass, either: Provider, sink: Sink
) -> None:
    sink.behaviour.faults.append(Fault(step, Way.DRIP, b"250-" + b"x" * 1000 + b"\r\n", seconds=0.02))
    began = time.monotonic()
    error = failure(either, seconds=0.4)
    assert error.error_class is error_class
    assert time.monotonic() - began < 0.8


GARBAGE = {
    "no code": b"hello there\r\n",
    "code of two digits": b"25 ok\r\n",
    "code out of range": b"999 ok\r\n",
    "code of other digits": "²50 ok\r\n".encode(),
    "no mark behind the code": b"2500 ok\r\n",
    "binary": bytes(range(256)) + b"\r\n",
    "empty line": b"\r\n",
    "line without end": b"250 " + b"x" * 200_000,
    "overlong line": b"250 " + b"x" * 5000 + b"\r\n",
    "lines without end": b"250-x\r\n" * 20_000,
    "mixed codes": b"250-one\r\n550 two\r\n",
    "intermediate": b"354 go\r\n",
}


@pytest.mark.parametrize("reply", GARBAGE.values(), ids=GARBAGE.keys())
@pytest.mark.parametrize("step", [Step.CONNECT, Step.EHLO, Step.MAIL, Step.RCPT, Step.ACCEPTED])
def test_garbage_ends_the_connection_in_the_class_of_its_moment(
    step: Step, reply: bytes, either: Provider, sink: Sink
) -> None:
    sink.behaviour.faults.append(Fault(step, Way.REPLY, reply))
    error = failure(either, seconds=3)
    expected = ErrorClass.UNKNOWN if step is Step.ACCEPTED else ErrorClass.TRANSIENT
    assert error.error_class is expected
    assert error.code in {"outcome_unknown", "smtp_protocol_error"}
    either.send(composed_mail(), Deadline.after(5))
    assert sink.connections == 2
    with sink._changed:
        sink._violations.clear()  # the client may have left the sink in the middle of a pipelined group


def test_a_bare_line_feed_and_a_bare_code_are_understood(either: Provider, sink: Sink) -> None:
    sink.behaviour.replies["lf@example.com"] = b"250 ok\n"
    sink.behaviour.replies["code@example.com"] = b"250\r\n"
    result = either.send(composed_mail("lf@example.com", "code@example.com"), Deadline.after(5))
    assert {outcome.state for outcome in result.outcomes.values()} == {State.ACCEPTED}


def test_hostile_words_are_bounded_and_harmless(either: Provider, sink: Sink) -> None:
    hostile = "550 \x1b[31mred\x07\x00 \u202egnp.exe \u2028" + "x" * 3000
    sink.behaviour.replies["a@example.com"] = hostile.encode() + b" \xff\xfe\r\n"
    result = either.send(composed_mail("a@example.com"), Deadline.after(5))
    text = result.outcomes["a@example.com"].text
    assert len(text) <= 300
    assert text.isprintable()
    assert text.startswith("[31mred gnp.exe xxx")
    sink.behaviour.faults.append(Fault(Step.MAIL, Way.REPLY, hostile.encode() + b"\r\n"))
    error = failure(either)
    assert error.code == "smtp_550"
    assert str(error).isprintable()
    assert len(str(error)) < 400


@pytest.mark.parametrize(
    ("step", "reply", "error_class"),
    [
        (Step.CONNECT, b"554 5.7.1 your address is on a list\r\n", ErrorClass.OPERATOR),
        (Step.CONNECT, b"451 4.7.1 not now\r\n", ErrorClass.TRANSIENT),
        (Step.MAIL, b"550 5.7.1 relaying denied\r\n", ErrorClass.OPERATOR),
        (Step.MAIL, b"553 5.1.8 sender unknown\r\n", ErrorClass.PERMANENT),
        (Step.MAIL, b"452 4.3.1 disk full\r\n", ErrorClass.TRANSIENT),
        (Step.DATA, b"451 4.3.0 try later\r\n", ErrorClass.TRANSIENT),
        (Step.DATA, b"554 5.6.0 no\r\n", ErrorClass.PERMANENT),
        (Step.END, b"554 5.7.1 this is spam\r\n", ErrorClass.PERMANENT),
        (Step.END, b"554 5.7.0 too busy, try again later\r\n", ErrorClass.TRANSIENT),
        (Step.END, b"552 5.2.2 over quota\r\n", ErrorClass.TRANSIENT),
        (Step.END, b"552 5.3.4 too large\r\n", ErrorClass.PERMANENT),
        (Step.END, b"454 4.7.0 Throttling failure: rate\r\n", ErrorClass.TRANSIENT),
    ],
)
def test_a_refusal_of_the_whole_mail_has_the_class_of_its_reply_and_the_connection_goes_on(
    step: Step, reply: bytes, error_class: ErrorClass, either: Provider, sink: Sink
) -> None:
    sink.behaviour.faults.append(Fault(step, Way.REPLY, reply))
    error = failure(either)
    assert (error.code, error.error_class) == (f"smtp_{reply[:3].decode()}", error_class)
    assert reply[4:].decode().strip() in str(error)
    either.send(composed_mail(), Deadline.after(5))
    assert len(sink.accepted) == 1
    assert sink.connections == (2 if step is Step.CONNECT else 1)


def test_a_recipient_whom_the_server_does_not_relay_to_is_refused_alone(either: Provider, sink: Sink) -> None:
    sink.behaviour.replies["far@example.com"] = b"554 5.7.1 <far@example.com>: Relay access denied\r\n"
    result = either.send(composed_mail("far@example.com", "near@example.com"), Deadline.after(5))
    assert result.outcomes["far@example.com"].state is State.REFUSED
    assert result.outcomes["near@example.com"].state is State.ACCEPTED


def test_a_login_wanted_only_at_rcpt_is_the_operators_fault_and_nothing_is_sent(either: Provider, sink: Sink) -> None:
    sink.behaviour.replies["b@example.com"] = b"530 5.7.0 log in first\r\n"
    with pytest.raises(ProviderError) as caught:
        either.send(composed_mail("a@example.com", "b@example.com"), Deadline.after(5))
    assert (caught.value.code, caught.value.error_class) == ("smtp_530", ErrorClass.OPERATOR)
    either.send(composed_mail(), Deadline.after(5))
    assert len(sink.accepted) == 1
