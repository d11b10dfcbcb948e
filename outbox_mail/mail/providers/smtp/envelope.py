"""What goes out for one mail: its commands and its body, checked against what the server offers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from outbox_mail.errors import ProviderError
from outbox_mail.mail.providers.base import Composed

_MAX_ADDRESS: Final = 320
_JOINED_BYTES: Final = 262144
"""Below, one write of a copy is cheaper than two writes."""
# Mailbox of RFC 5321 §4.1.2, with the UTF-8 of RFC 6531 in the local part. Anything else could carry a second command
# or another parameter.
_ADDRESS: Final = re.compile(
    r"""(?: [^\s\x00-\x20\x7f-\xa0"(),:;<>@\[\\\]]+ | "(?: [^\x00-\x1f\x7f-\x9f"\\] | \\[\x20-\x7e] )*" )"""
    r"""@(?: [A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])? | \[[0-9A-Za-z:.]+\] )""",
    re.VERBOSE,
)


def is_sendable(address: str) -> bool:
    """Whether ``address`` can stand between ``<`` and ``>`` and mean nothing but itself."""
    return len(address) <= _MAX_ADDRESS and _ADDRESS.fullmatch(address) is not None


def body_of(data: bytes) -> Sequence[bytes]:
    """``data`` as it follows DATA (RFC 5321 §4.5.2): dots at line starts doubled, the end marked.

    In pieces, in order: a large mail is copied only when it has dots to double.

    Raises a permanent ``ProviderError`` for a lone CR or LF: servers disagree on what those are, and a mail that ends
    earlier for one of them than for another can smuggle a second mail behind it.
    """
    line_ends = data.count(b"\r\n")
    if data.count(b"\n") != line_ends or data.count(b"\r") != line_ends:
        raise ProviderError("bare_line_end", "the composed mail has a lone CR or LF; lines must end with CRLF")
    if b"\r\n." in data:
        data = data.replace(b"\r\n.", b"\r\n..")
    end = b".\r\n" if data.endswith(b"\r\n") else b"\r\n.\r\n"
    pieces = [b".", data, end] if data.startswith(b".") else [data, end]
    return [b"".join(pieces)] if len(data) < _JOINED_BYTES else pieces


def mail_command(mail: Composed, extensions: Mapping[str, str]) -> bytes:
    """``MAIL FROM`` with the parameters that this mail needs and this server offers.

    Raises a permanent ``ProviderError`` when the sender is malformed, or the server does not offer what the mail needs:
    its size (RFC 1870), 8-bit data (RFC 6152), addresses in UTF-8 (RFC 6531).
    """
    sender = mail.envelope_sender
    if sender and not is_sendable(sender):
        raise ProviderError("invalid_sender", "the envelope sender is not an address that SMTP can carry. Mend it")
    command = b"MAIL FROM:<" + sender.encode() + b">"
    if "SIZE" in extensions:
        limit = extensions["SIZE"].strip()
        if limit.isdecimal() and 0 < int(limit[:20]) < len(mail.data):
            raise ProviderError(
                "message_too_large",
                f"the mail has {len(mail.data)} bytes, and the server takes {limit[:20]} at most. Send less, or a link",
            )
        command += b" SIZE=%d" % len(mail.data)
    utf8 = mail.needs_smtputf8 or not (sender.isascii() and all(address.isascii() for address in mail.recipients))
    if utf8 and "SMTPUTF8" not in extensions:
        raise ProviderError(
            "smtputf8_not_supported",
            "an address has letters outside ASCII before its @, and the server does not offer SMTPUTF8. Use another "
            "address, or a server that offers it",
        )
    if not mail.data.isascii():
        if "8BITMIME" not in extensions:
            raise ProviderError(
                "8bitmime_not_supported",
                "the mail has 8-bit data and the server does not offer 8BITMIME. Encode it as base64 or such",
            )
        command += b" BODY=8BITMIME"
    if utf8:
        command += b" SMTPUTF8"
    return command + b"\r\n"


def rcpt_command(address: str) -> bytes:
    """``RCPT TO`` for an address that ``is_sendable``."""
    return b"RCPT TO:<" + address.encode() + b">\r\n"
