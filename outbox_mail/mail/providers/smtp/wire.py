"""Bytes to and from one SMTP server, under a deadline that no server can stretch."""

from __future__ import annotations

import contextlib
import ipaddress
import queue
import socket
import ssl
import threading
from enum import Enum
from typing import Final

from outbox_mail.errors import ErrorClass, ProviderError
from outbox_mail.mail.providers.base import Deadline
from outbox_mail.mail.providers.smtp.replies import Reply

_MAX_LINE_BYTES: Final = 4096
"""RFC 5321 §4.5.3.1.5 says 512; servers in the wild write more."""
_MAX_LINES: Final = 128
_RECEIVE_BYTES: Final = 16384
_CHUNK_BYTES: Final = 262144


class Trouble(Enum):
    """Why talking failed."""

    TIMEOUT = "timeout"
    LOST = "smtp_connection_lost"
    GARBAGE = "smtp_protocol_error"


class WireError(Exception):
    """The connection is of no use any more. What that means for a mail depends on how far it had come."""

    def __init__(self, trouble: Trouble, text: str) -> None:
        super().__init__(text)
        self.trouble = trouble


class Wire:
    """One socket. Each operation's timeout is what the deadline has left, so a server that drips gains nothing."""

    __slots__ = ("_buffer", "_socket", "deadline")

    def __init__(self, connected: socket.socket, deadline: Deadline) -> None:
        self._socket = connected
        self._buffer = bytearray()
        self.deadline = deadline

    def write(self, data: bytes) -> None:
        """Hand all of ``data`` to the kernel. A ``WireError`` means that some of its end was not handed over."""
        view = memoryview(data)
        while view:
            self._arm()
            try:
                view = view[self._socket.send(view[:_CHUNK_BYTES]) :]
            except TimeoutError:
                raise WireError(Trouble.TIMEOUT, "the server took no more data until the deadline") from None
            except OSError as error:
                raise WireError(Trouble.LOST, f"the connection broke while sending ({reason_of(error)})") from None

    def read_reply(self) -> Reply:
        """One reply of one or more lines, bounded in lines and in their length."""
        lines: list[bytes] = []
        first = b""
        while True:
            line = self._read_line()
            code, mark = line[:3], line[3:4]
            if not (code.isdigit() and b"200" <= code <= b"599" and mark in (b" ", b"-", b"")):
                raise WireError(Trouble.GARBAGE, "the server answered with something that is no SMTP reply")
            first = first or code
            if code != first or len(lines) == _MAX_LINES:
                raise WireError(Trouble.GARBAGE, "the server's reply has lines without end, or with different codes")
            lines.append(line[4:])
            if mark != b"-":
                return Reply(int(code), b"\n".join(lines))

    def is_quiet(self) -> bool:
        """Whether an idle connection is still open with nothing to read: no end of file, no parting 421."""
        if self._buffer:
            return False
        try:
            self._socket.settimeout(0)
            self._socket.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            return False
        return False

    def start_tls(self, context: ssl.SSLContext, host: str) -> None:
        """Shake hands. What the server sent in the clear behind its reply to STARTTLS is refused, never read as TLS's.

        Raises ``ProviderError``: operator for a certificate or protocol that doesn't fit, transient else.
        """
        if self._buffer:
            raise WireError(Trouble.GARBAGE, "the server sent more than its reply before TLS began")
        try:
            self._arm()
            wrapped = context.wrap_socket(self._socket, server_hostname=host, do_handshake_on_connect=False)
            self._socket = wrapped
            wrapped.do_handshake()
        except TimeoutError:
            raise WireError(Trouble.TIMEOUT, "the TLS handshake did not end before the deadline") from None
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
            raise WireError(Trouble.LOST, f"the server left the TLS handshake ({reason_of(error)})") from None
        except ssl.SSLCertVerificationError as error:
            raise ProviderError(
                "smtp_tls_certificate",
                f"the certificate of {host} was not accepted: {error.verify_message}. Name the server as its "
                "certificate does, or give the authority's certificate as ?ca_file=…",
                error_class=ErrorClass.OPERATOR,
            ) from None
        except ssl.SSLError as error:
            raise ProviderError(
                "smtp_tls_failed",
                f"{host} and this client found no common TLS ({reason_of(error)}). smtps:// is for servers that speak "
                "TLS from the first byte (port 465), smtp:// for those that offer STARTTLS",
                error_class=ErrorClass.OPERATOR,
            ) from None
        except OSError as error:
            raise WireError(Trouble.LOST, f"the connection broke in the TLS handshake ({reason_of(error)})") from None

    def local_address(self) -> str:
        """This end's address as the literal of RFC 5321 §4.1.3."""
        address = self._socket.getsockname()[0].partition("%")[0]
        return f"[IPv6:{address}]" if ":" in address else f"[{address}]"

    def close(self) -> None:
        """Close the socket without a word. Safe to call twice, and in a forked child."""
        with contextlib.suppress(OSError):
            self._socket.close()

    def _read_line(self) -> bytes:
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > _MAX_LINE_BYTES:
                raise WireError(Trouble.GARBAGE, "the server's reply line has no end")
            self._receive()
        line = bytes(self._buffer[:end]).removesuffix(b"\r")
        del self._buffer[: end + 1]
        if len(line) > _MAX_LINE_BYTES:
            raise WireError(Trouble.GARBAGE, "the server's reply line is too long")
        return line

    def _receive(self) -> None:
        self._arm()
        try:
            received = self._socket.recv(_RECEIVE_BYTES)
        except TimeoutError:
            raise WireError(Trouble.TIMEOUT, "the server did not answer before the deadline") from None
        except OSError as error:
            raise WireError(Trouble.LOST, f"the connection broke ({reason_of(error)})") from None
        if not received:
            raise WireError(Trouble.LOST, "the server closed the connection")
        self._buffer += received

    def _arm(self) -> None:
        left = self.deadline.remaining_seconds()
        if left <= 0:
            raise WireError(Trouble.TIMEOUT, "the send deadline passed")
        self._socket.settimeout(left)


def connect(host: str, port: int, deadline: Deadline) -> Wire:
    """Connect to the first address of ``host`` that answers; each gets its share of the time, so none eats it all.

    Raises ``ProviderError``: transient, or operator where the name does not exist.
    """
    addresses = _resolve(host, port, deadline)
    problem = "no address"
    for place, (family, address) in enumerate(addresses):
        left = deadline.remaining_seconds()
        if left <= 0:
            break
        candidate = socket.socket(family, socket.SOCK_STREAM)
        try:
            candidate.settimeout(left / (len(addresses) - place))
            candidate.connect(address)
            candidate.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            problem = reason_of(error)
            candidate.close()
        except BaseException:
            candidate.close()
            raise
        else:
            return Wire(candidate, deadline)
    raise ProviderError(
        "smtp_connect_failed", f"could not connect to {host}:{port} ({problem})", error_class=ErrorClass.TRANSIENT
    )


_Address = tuple[socket.AddressFamily, tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]]


def _resolve(host: str, port: int, deadline: Deadline) -> list[_Address]:
    with contextlib.suppress(ValueError):
        family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
        return [(family, (host, port))]
    found: queue.SimpleQueue[list[_Address] | OSError] = queue.SimpleQueue()

    def look_up() -> None:
        try:
            answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            found.put(error if isinstance(error, OSError) else socket.gaierror(socket.EAI_NONAME, "not a host name"))
        else:
            found.put([(answer[0], answer[4]) for answer in answers])

    # getaddrinfo knows no timeout; a thread that it holds up is left behind and ends when the resolver gives up.
    threading.Thread(target=look_up, name="smtp-resolve", daemon=True).start()
    try:
        answer = found.get(timeout=deadline.remaining_seconds())
    except queue.Empty:
        raise ProviderError(
            "smtp_connect_failed", f"the name {host} was not resolved in time", error_class=ErrorClass.TRANSIENT
        ) from None
    if isinstance(answer, OSError):
        unknown = isinstance(answer, socket.gaierror) and answer.errno == socket.EAI_NONAME
        raise ProviderError(
            "smtp_host_unknown" if unknown else "smtp_connect_failed",
            f"the name {host} could not be resolved ({reason_of(answer)})",
            error_class=ErrorClass.OPERATOR if unknown else ErrorClass.TRANSIENT,
        )
    return answer


def reason_of(error: OSError) -> str:
    """The system's words for an error, without paths or objects."""
    if isinstance(error, ssl.SSLError):
        return error.reason or type(error).__name__
    return error.strerror or str(error) or type(error).__name__
