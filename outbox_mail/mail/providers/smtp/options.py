"""What an ``smtp://`` or ``smtps://`` URL says."""

from __future__ import annotations

import base64
import ssl
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final
from urllib.parse import SplitResult

from outbox_mail.errors import ConfigurationError
from outbox_mail.mail.providers.url import Query, credentials_of, host_and_port_of, refuse_path

_PORTS: Final = {"smtp": 587, "smtps": 465}


class Tls(StrEnum):
    """How the connection is protected."""

    IMPLICIT = "implicit"
    """From the first byte: ``smtps://``."""
    REQUIRED = "required"
    """STARTTLS, or nothing is sent: the default of ``smtp://``."""
    OPTIONAL = "optional"
    """STARTTLS if offered. Somebody on the way can take the offer out."""
    NONE = "none"


class Auth(StrEnum):
    """The SASL mechanisms that this client speaks."""

    PLAIN = "plain"
    LOGIN = "login"


@dataclass(frozen=True, slots=True)
class SmtpOptions:
    """Where and how to connect. Durations are in seconds."""

    host: str
    port: int
    tls: Tls = Tls.REQUIRED
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    verify: bool = True
    """Whether the server's certificate must be valid and name ``host``."""
    ca_file: str | None = None
    """Certificates (PEM) of the authorities to trust instead of the system's."""
    auth: Auth | None = None
    """The mechanism to use; None: PLAIN where offered, else LOGIN."""
    ehlo: str | None = None
    """The name to greet with; None: this machine's name if it is a full one, else its address."""
    pipelining: bool = True
    """Whether to use PIPELINING (RFC 2920) where it is offered."""
    connect_seconds: float = 15.0
    """Bound on everything from the first packet to AUTH, within the send's deadline."""
    keep_seconds: float = 60.0
    """A connection idle for longer is not used again."""
    max_age_seconds: float = 600.0
    max_mails: int = 100
    """Mails on one connection, at most."""

    def scrub(self, text: str) -> str:
        """``text`` without the password, however a server may have echoed it."""
        if self.username is None or not self.password:
            return text
        secrets = (
            base64.b64encode(self.plain_token()).decode(),
            base64.b64encode(self.password.encode()).decode(),
            self.password,
        )
        for secret in secrets:
            text = text.replace(secret, "***")
        return text

    def plain_token(self) -> bytes:
        """The message of SASL PLAIN (RFC 4616)."""
        return f"\0{self.username or ''}\0{self.password or ''}".encode()

    def ssl_context(self) -> ssl.SSLContext:
        """A client context as the options say; ``ConfigurationError`` when ``ca_file`` can't be read."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(f"provider URL: ca_file={self.ca_file} can't be read as PEM ({error})") from None
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def options_from_url(url: SplitResult) -> SmtpOptions:
    """The options in a URL. Raises ``ConfigurationError`` that names what is allowed and shows no password."""
    refuse_path(url)
    host, port = host_and_port_of(url, _PORTS[url.scheme])
    username, password = credentials_of(url)
    query = Query(url)
    explicit = url.scheme == "smtp"
    modes = (Tls.REQUIRED, Tls.OPTIONAL, Tls.NONE) if explicit else (Tls.IMPLICIT,)
    options = SmtpOptions(
        host=host,
        port=port,
        username=username,
        password=password,
        tls=Tls(query.choice("tls", [mode.value for mode in modes], modes[0].value)),
        verify=query.flag("verify", default=True),
        ca_file=query.text("ca_file"),
        auth=Auth(chosen) if (chosen := query.choice("auth", [each.value for each in Auth], "")) else None,
        ehlo=query.text("ehlo", pattern=r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Za-z:.]+\]"),
        pipelining=query.flag("pipelining", default=True),
        connect_seconds=query.number("connect_seconds", 15.0, lowest=0.1, highest=600),
        keep_seconds=query.number("keep_seconds", 60.0, lowest=0, highest=3600),
        max_age_seconds=query.number("max_age_seconds", 600.0, lowest=0, highest=86400),
        max_mails=int(query.number("max_mails", 100, lowest=1, highest=1_000_000)),
    )
    query.refuse_the_rest()
    if options.auth and options.username is None:
        raise ConfigurationError("provider URL: auth=… is given without a user name and password before the @")
    return options
