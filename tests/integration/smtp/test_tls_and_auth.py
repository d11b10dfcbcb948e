"""Protection and log-in: what is refused, and that secrets stay inside."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme

from outbox_mail.errors import ConfigurationError, ErrorClass, ProviderError
from outbox_mail.mail.providers.base import Deadline, Provider
from outbox_mail.testing.mails import composed_mail
from outbox_mail.testing.sink import Behaviour, Fault, Sink, Step, Way

Connect = Callable[[str], Provider]
PASSWORD = "p@ss/w:rd #1"
ENCODED = "p%40ss%2Fw%3Ard%20%231"


def soon() -> Deadline:
    return Deadline.after(10)


def failure(provider: Provider) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        provider.send(composed_mail(), soon())
    return caught.value


@pytest.mark.parametrize("implicit", [False, True])
def test_mail_travels_over_tls_with_a_checked_certificate(
    implicit: bool, server_tls: ssl.SSLContext, ca_file: Path, connect: Connect
) -> None:
    with Sink(Behaviour(tls=server_tls, implicit_tls=implicit)) as sink:
        provider = connect(f"{sink.url}?ca_file={ca_file}")
        for _ in range(3):
            provider.send(composed_mail(body=b"x" * 70 + b"\r\n"), soon())
        provider.send(composed_mail(body=(b"x" * 70 + b"\r\n") * 50_000), Deadline.after(30))
        assert len(sink.accepted) == 4
        assert sink.connections == 1
        assert sink.violations == []


@pytest.mark.parametrize("implicit", [False, True])
def test_a_certificate_that_nobody_vouches_for_is_the_operators_fault(
    implicit: bool, server_tls: ssl.SSLContext, connect: Connect
) -> None:
    with Sink(Behaviour(tls=server_tls, implicit_tls=implicit)) as sink:
        error = failure(connect(sink.url))
        assert (error.code, error.error_class) == ("smtp_tls_certificate", ErrorClass.OPERATOR)
        connect(f"{sink.url}?verify=false").send(composed_mail(), soon())
        assert len(sink.accepted) == 1


def test_a_certificate_for_another_name_is_refused(authority: trustme.CA, ca_file: Path, connect: Connect) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("other.example").configure_cert(tls)
    with Sink(Behaviour(tls=tls)) as sink:
        error = failure(connect(f"{sink.url}?ca_file={ca_file}"))
        assert error.code == "smtp_tls_certificate"
        assert sink.accepted == []


def test_a_missing_ca_file_stops_the_start_up(tmp_path: Path, connect: Connect) -> None:
    with pytest.raises(ConfigurationError, match="ca_file"):
        connect(f"smtp://localhost?ca_file={tmp_path}/none.pem")


def test_without_an_offer_of_starttls_nothing_is_sent(sink: Sink, connect: Connect) -> None:
    error = failure(connect(f"smtp://127.0.0.1:{sink.port}"))
    assert (error.code, error.error_class) == ("smtp_tls_unavailable", ErrorClass.OPERATOR)
    assert "?tls=none" in str(error)
    connect(f"smtp://127.0.0.1:{sink.port}?tls=optional").send(composed_mail(), soon())
    assert len(sink.accepted) == 1


def test_optional_tls_is_used_where_offered(
    behaviour: Behaviour, sink: Sink, server_tls: ssl.SSLContext, connect: Connect
) -> None:
    behaviour.tls = server_tls
    error = failure(connect(f"{sink.url}?tls=optional"))
    assert error.code == "smtp_tls_certificate"


def test_what_comes_in_the_clear_behind_starttls_is_never_taken_for_an_answer(
    behaviour: Behaviour, sink: Sink, server_tls: ssl.SSLContext, ca_file: Path, connect: Connect
) -> None:
    behaviour.tls = server_tls
    behaviour.faults.append(Fault(Step.STARTTLS, Way.REPLY, b"220 go ahead\r\n250-injected\r\n250 AUTH PLAIN\r\n"))
    error = failure(connect(f"{sink.url}?ca_file={ca_file}"))
    assert (error.code, error.error_class) == ("smtp_protocol_error", ErrorClass.TRANSIENT)


def test_speaking_tls_to_a_server_that_does_not_is_the_operators_fault(sink: Sink, connect: Connect) -> None:
    error = failure(connect(f"smtps://127.0.0.1:{sink.port}"))
    assert (error.code, error.error_class) == ("smtp_tls_failed", ErrorClass.OPERATOR)
    sink.violations.clear()


def test_a_tls_handshake_that_never_ends_stops_at_the_deadline(
    behaviour: Behaviour, sink: Sink, connect: Connect
) -> None:
    behaviour.faults.append(Fault(Step.CONNECT, Way.SILENCE))
    provider = connect(f"smtps://127.0.0.1:{sink.port}")
    with pytest.raises(ProviderError) as caught:
        provider.send(composed_mail(), Deadline.after(0.3))
    assert (caught.value.code, caught.value.error_class) == ("timeout", ErrorClass.TRANSIENT)


@pytest.mark.parametrize("mechanisms", [("PLAIN", "LOGIN"), ("LOGIN",), ("CRAM-MD5", "PLAIN")])
@pytest.mark.parametrize("password", [PASSWORD, "şifre"])
def test_it_logs_in_once_a_connection(
    mechanisms: tuple[str, ...], password: str, server_tls: ssl.SSLContext, ca_file: Path, connect: Connect
) -> None:
    behaviour = Behaviour(tls=server_tls, credentials=("shop@example.com", password), mechanisms=mechanisms)
    encoded = ENCODED if password == PASSWORD else "%C5%9Fifre"
    with Sink(behaviour) as sink:
        provider = connect(f"smtp://shop%40example.com:{encoded}@localhost:{sink.port}?ca_file={ca_file}")
        provider.send(composed_mail(), soon())
        provider.send(composed_mail(), soon())
        assert len(sink.accepted) == 2
        assert sink.violations == []


@pytest.mark.parametrize("mechanism", ["plain", "login"])
def test_a_wrong_password_is_the_operators_fault_and_is_not_shown(mechanism: str, sink: Sink, connect: Connect) -> None:
    sink.behaviour.credentials = ("shop", "another")
    token = base64.b64encode(f"\0shop\0{PASSWORD}".encode())
    encoded = base64.b64encode(PASSWORD.encode())
    provider = connect(f"smtp://shop:{ENCODED}@127.0.0.1:{sink.port}?tls=none&auth={mechanism}")
    error = failure(provider)
    assert (error.code, error.error_class) == ("smtp_535", ErrorClass.OPERATOR)
    echo = b"535 no: " + token + b" " + encoded + b" " + PASSWORD.encode() + b"\r\n"
    sink.behaviour.faults.append(Fault(Step.AUTH, Way.REPLY_AND_CLOSE, echo))
    for shown in (str(failure(provider)), repr(provider)):
        for secret in (PASSWORD, token.decode(), encoded.decode()):
            assert secret not in shown


@pytest.mark.parametrize(
    ("reply", "error_class"),
    [
        (b"454 4.7.0 temporary failure\r\n", ErrorClass.TRANSIENT),
        (b"421 4.7.0 busy\r\n", ErrorClass.TRANSIENT),
        (b"432 4.7.12 password transition needed\r\n", ErrorClass.OPERATOR),
        (b"534 5.7.9 too weak\r\n", ErrorClass.OPERATOR),
        (b"550 5.7.1 account suspended\r\n", ErrorClass.OPERATOR),
        (b"250 what?\r\n", ErrorClass.TRANSIENT),
    ],
)
def test_what_goes_wrong_at_auth_is_never_the_messages_fault(
    reply: bytes, error_class: ErrorClass, sink: Sink, connect: Connect
) -> None:
    sink.behaviour.credentials = ("shop", "secret")
    sink.behaviour.faults.append(Fault(Step.AUTH, Way.REPLY, reply))
    error = failure(connect(f"smtp://shop:secret@127.0.0.1:{sink.port}?tls=none"))
    assert error.error_class is error_class


def test_a_server_that_wants_a_login_nobody_gave_is_the_operators_fault(sink: Sink, connect: Connect) -> None:
    sink.behaviour.credentials = ("shop", "secret")
    error = failure(connect(sink.url))
    assert (error.code, error.error_class) == ("smtp_530", ErrorClass.OPERATOR)


def test_a_login_that_the_server_does_not_offer_is_the_operators_fault(sink: Sink, connect: Connect) -> None:
    error = failure(connect(f"smtp://shop:secret@127.0.0.1:{sink.port}?tls=none"))
    assert (error.code, error.error_class) == ("smtp_auth_unavailable", ErrorClass.OPERATOR)


def test_a_password_goes_in_the_clear_only_on_purpose_or_within_this_machine(
    sink: Sink, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.behaviour.credentials = ("shop", "secret")
    connect(f"smtp://shop:secret@127.0.0.1:{sink.port}?tls=optional").send(composed_mail(), soon())
    connect(f"smtp://shop:secret@127.0.0.1:{sink.port}?tls=none").send(composed_mail(), soon())
    monkeypatch.setattr("outbox_mail.mail.providers.smtp.handshake._is_loopback", lambda _host: False)
    error = failure(connect(f"smtp://shop:secret@127.0.0.1:{sink.port}?tls=optional"))
    assert (error.code, error.error_class) == ("smtp_tls_unavailable", ErrorClass.OPERATOR)
    connect(f"smtp://shop:secret@127.0.0.1:{sink.port}?tls=none").send(composed_mail(), soon())
    assert len(sink.accepted) == 3
