"""The client against aiosmtpd: another reading of the same RFCs."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, Envelope, LoginPassword

from outbox_mail.errors import ErrorClass, ProviderError
from outbox_mail.mail.providers.base import Deadline, Provider, State
from outbox_mail.testing.mails import composed_mail

Connect = Callable[[str], Provider]


class Handler:
    """Keeps what it is given; refuses and puts off by name."""

    def __init__(self) -> None:
        self.taken: list[Envelope] = []

    async def handle_RCPT(self, _server: Any, _session: Any, envelope: Any, address: str, _options: Any) -> str:  # noqa: N802
        if address.startswith("refused"):
            return "550 5.1.1 no such user"
        if address.startswith("deferred"):
            return "451 4.7.1 try again in 5 minutes"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Envelope) -> str:  # noqa: N802
        self.taken.append(envelope)
        return "250 OK"


@pytest.fixture
def handler() -> Handler:
    return Handler()


Serve = Callable[..., int]


@pytest.fixture
def serve(handler: Handler) -> Iterator[Serve]:
    """Starts a server; returns its port."""
    started: list[Controller] = []

    def start(**options: Any) -> int:
        # The controller pings the port that it was given, so 0 won't do.
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port: int = free.getsockname()[1]
        controller = Controller(handler, hostname="127.0.0.1", port=port, **options)
        controller.start()
        started.append(controller)
        return port

    yield start
    for controller in started:
        controller.stop()


def _known(server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
    right = isinstance(data, LoginPassword) and (data.login, data.password) == (b"shop", b"secret")
    return AuthResult(success=right, handled=False)


def test_mails_arrive_one_after_the_other_on_one_connection(serve: Serve, handler: Handler, connect: Connect) -> None:
    provider = connect(f"smtp://127.0.0.1:{serve(enable_SMTPUTF8=True)}?tls=none")
    mails = [composed_mail("a@example.com", body=b".\r\n..x\r\n" * number) for number in range(1, 6)]
    for mail in mails:
        provider.send(mail, Deadline.after(10))
    assert [envelope.content for envelope in handler.taken] == [mail.data for mail in mails]
    provider.send(composed_mail("çiçek@example.com", body="ş\r\n".encode(), needs_smtputf8=True), Deadline.after(10))
    assert handler.taken[-1].rcpt_tos == ["çiçek@example.com"]


def test_recipients_have_their_own_outcomes(serve: Serve, handler: Handler, connect: Connect) -> None:
    provider = connect(f"smtp://127.0.0.1:{serve()}?tls=none")
    mail = composed_mail("refused@example.com", "deferred@example.com", "ok@example.com")
    result = provider.send(mail, Deadline.after(10))
    assert [outcome.state for outcome in result.outcomes.values()] == [State.REFUSED, State.DEFERRED, State.ACCEPTED]
    assert result.retry_after_seconds == 300
    result = provider.send(composed_mail("refused@example.com"), Deadline.after(10))
    assert result.outcomes["refused@example.com"].state is State.REFUSED
    provider.send(composed_mail("ok@example.com"), Deadline.after(10))
    assert [envelope.rcpt_tos for envelope in handler.taken] == [["ok@example.com"], ["ok@example.com"]]


def test_starttls_and_login(
    serve: Serve, handler: Handler, connect: Connect, server_tls: ssl.SSLContext, ca_file: Path
) -> None:
    port = serve(tls_context=server_tls, require_starttls=True, authenticator=_known, auth_required=True)
    for mechanism in ("plain", "login"):
        provider = connect(f"smtp://shop:secret@localhost:{port}?ca_file={ca_file}&auth={mechanism}")
        provider.send(composed_mail(), Deadline.after(10))
    assert len(handler.taken) == 2
    for credentials in ("shop:wrong@", ""):
        with pytest.raises(ProviderError) as caught:
            connect(f"smtp://{credentials}localhost:{port}?ca_file={ca_file}").send(composed_mail(), Deadline.after(10))
        assert caught.value.error_class is ErrorClass.OPERATOR
    with pytest.raises(ProviderError) as caught:
        connect(f"smtp://127.0.0.1:{port}?tls=none").send(composed_mail(), Deadline.after(10))
    assert (caught.value.code, caught.value.error_class) == ("smtp_530", ErrorClass.OPERATOR)


def test_a_mail_above_the_servers_limit_is_not_sent(serve: Serve, handler: Handler, connect: Connect) -> None:
    provider = connect(f"smtp://127.0.0.1:{serve(data_size_limit=2000)}?tls=none")
    with pytest.raises(ProviderError) as caught:
        provider.send(composed_mail(body=(b"x" * 70 + b"\r\n") * 100), Deadline.after(10))
    assert caught.value.code == "message_too_large"
    assert handler.taken == []
