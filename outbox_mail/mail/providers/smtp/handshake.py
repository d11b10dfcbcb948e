"""From connecting to the moment when mails may be sent: greeting, EHLO, TLS, AUTH."""

from __future__ import annotations

import base64
import ipaddress
import socket
import ssl
from dataclasses import dataclass
from typing import Final

from outbox_mail.errors import ErrorClass, ProviderError
from outbox_mail.mail.providers.base import Deadline
from outbox_mail.mail.providers.smtp.options import Auth, SmtpOptions, Tls
from outbox_mail.mail.providers.smtp.replies import Reply, Stage, class_of, wait_hint_seconds
from outbox_mail.mail.providers.smtp.wire import Trouble, Wire, connect

_MAX_EXTENSIONS: Final = 100


@dataclass(frozen=True, slots=True)
class Ready:
    """A connection on which mails may be sent, and what the server offers: keyword in capitals → its parameters."""

    wire: Wire
    extensions: dict[str, str]


def refusal(options: SmtpOptions, reply: Reply, stage: Stage) -> ProviderError:
    """The error for a reply that refuses what was asked; an unexpected reply is a transient breach of the protocol."""
    told = f"{options.host} answered {reply.code} to {stage}: {options.scrub(reply.text)}"
    if not reply.negative:
        return ProviderError(Trouble.GARBAGE.value, told, error_class=ErrorClass.TRANSIENT)
    error_class = class_of(reply, stage)
    hint = wait_hint_seconds(reply) if error_class is ErrorClass.TRANSIENT else None
    return ProviderError(f"smtp_{reply.code}", told, error_class=error_class, retry_after_seconds=hint)


def open_connection(options: SmtpOptions, context: ssl.SSLContext | None, deadline: Deadline) -> Ready:
    """Connect, greet, protect, log in.

    Raises ``ProviderError`` (transient: not reachable, not now; operator: certificate, STARTTLS or AUTH missing, wrong
    password, not welcome) or ``WireError``; the socket is closed then.
    """
    wire = connect(options.host, options.port, deadline)
    try:
        return Ready(wire, _shake_hands(wire, options, context))
    except BaseException:
        wire.close()
        raise


def _shake_hands(wire: Wire, options: SmtpOptions, context: ssl.SSLContext | None) -> dict[str, str]:
    protected = False
    if options.tls is Tls.IMPLICIT and context:
        wire.start_tls(context, options.host)
        protected = True
    greeting = wire.read_reply()
    if not greeting.positive:
        raise refusal(options, greeting, Stage.CONNECT)
    extensions = _greet(wire, options)
    if not protected and options.tls in {Tls.REQUIRED, Tls.OPTIONAL} and context:
        if "STARTTLS" in extensions:
            wire.write(b"STARTTLS\r\n")
            reply = wire.read_reply()
            if not reply.positive:
                raise refusal(options, reply, Stage.CONNECT)
            wire.start_tls(context, options.host)
            protected = True
            # What was offered in the clear counts no more (RFC 3207 §4.2).
            extensions = _greet(wire, options)
        elif options.tls is Tls.REQUIRED:
            raise ProviderError(
                "smtp_tls_unavailable",
                f"{options.host} does not offer STARTTLS. Use smtps:// if it speaks TLS from the first byte, or add "
                "?tls=none if the way to it is safe without",
                error_class=ErrorClass.OPERATOR,
            )
    if options.username is not None:
        _log_in(wire, options, extensions, protected=protected)
    return extensions


def _greet(wire: Wire, options: SmtpOptions) -> dict[str, str]:
    name = (options.ehlo or _own_name() or wire.local_address()).encode()
    wire.write(b"EHLO " + name + b"\r\n")
    reply = wire.read_reply()
    if reply.positive:
        return _extensions(reply)
    if reply.code == 421 or reply.code < 500:
        raise refusal(options, reply, Stage.CONNECT)
    wire.write(b"HELO " + name + b"\r\n")
    reply = wire.read_reply()
    if not reply.positive:
        raise refusal(options, reply, Stage.CONNECT)
    return {}


def _extensions(reply: Reply) -> dict[str, str]:
    offered: dict[str, str] = {}
    for line in reply.raw.split(b"\n")[1 : 1 + _MAX_EXTENSIONS]:
        # "AUTH=LOGIN" is how servers before RFC 2554 wrote it, and some still do besides.
        words = line.decode("ascii", "replace").upper().replace("=", " ", 1).split()
        if words:
            offered[words[0]] = " ".join([offered.get(words[0], ""), *words[1:]]).strip()
    return offered


def _own_name() -> str:
    # Not getfqdn: it asks the DNS, without a timeout.
    name = socket.gethostname()
    return name if "." in name and name.isascii() and name.replace(".", "").replace("-", "").isalnum() else ""


def _log_in(wire: Wire, options: SmtpOptions, extensions: dict[str, str], *, protected: bool) -> None:
    if not protected and options.tls is not Tls.NONE and not _is_loopback(options.host):
        raise ProviderError(
            "smtp_tls_unavailable",
            f"{options.host} offers no TLS, and a password is not sent in the clear. Add ?tls=none if the way is safe",
            error_class=ErrorClass.OPERATOR,
        )
    offered = extensions.get("AUTH", "").split()
    mechanism = options.auth or next((each for each in Auth if each.name in offered), None)
    if mechanism is None or mechanism.name not in offered:
        raise ProviderError(
            "smtp_auth_unavailable",
            f"{options.host} does not offer {mechanism.name if mechanism else 'AUTH PLAIN or LOGIN'}. "
            "Take the user name out of the provider URL, or use the port for submission (587 or 465)",
            error_class=ErrorClass.OPERATOR,
        )
    if mechanism is Auth.PLAIN:
        steps = [b"AUTH PLAIN " + base64.b64encode(options.plain_token())]
    else:
        steps = [
            b"AUTH LOGIN",
            *(base64.b64encode((part or "").encode()) for part in (options.username, options.password)),
        ]
    for place, step in enumerate(steps, start=1):
        wire.write(step + b"\r\n")
        reply = wire.read_reply()
        if place < len(steps) and reply.code == 334:
            continue
        if reply.code == 235 and place == len(steps):
            return
        raise refusal(options, reply, Stage.AUTH)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def within(deadline: Deadline, seconds: float) -> Deadline:
    """The earlier of ``deadline`` and ``seconds`` from now."""
    return Deadline(min(deadline.at, Deadline.after(seconds).at))
