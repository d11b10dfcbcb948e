"""Mails printed for a person to read, while developing."""

from __future__ import annotations

import sys
import threading
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import TextIO

from outbox_mail.errors import ErrorClass, ProviderError
from outbox_mail.mail.providers.base import Composed, Deadline, SendResult
from outbox_mail.mail.providers.url import Query, refuse_host, refuse_path, split

_SHOWN_HEADERS = ("From", "To", "Cc", "Reply-To", "Subject", "Date", "Message-ID")
_MAX_BODY = 20_000


class ConsoleProvider:
    """Prints headers, the text to read and the names of attachments; accepts everything.

    Mail is written by strangers: what a terminal would take for a command is not printed.
    """

    name = "console"

    def __init__(self, stream: TextIO | None = None) -> None:
        """``stream``: where to; standard output as it is when a mail is sent, if not given."""
        self._stream = stream
        self._lock = threading.Lock()

    @classmethod
    def from_url(cls, url: str) -> ConsoleProvider:
        """From ``console:``."""
        parts = split(url)
        refuse_host(parts)
        refuse_path(parts)
        Query(parts).refuse_the_rest()
        return cls()

    def send(self, mail: Composed, deadline: Deadline) -> SendResult:
        """Print ``mail`` as one piece. Raises a transient ``ProviderError`` when the stream is closed or broken."""
        deadline.require("before the mail was printed")
        shown = readable(mail)
        stream = self._stream or sys.stdout
        encoding = getattr(stream, "encoding", None) or "utf-8"
        try:
            with self._lock:
                stream.write(shown.encode(encoding, "replace").decode(encoding))
                stream.flush()
        except (OSError, ValueError) as error:
            raise ProviderError(
                "console_failed",
                f"the mail could not be printed ({type(error).__name__})",
                error_class=ErrorClass.TRANSIENT,
            ) from None
        return SendResult.all_accepted(mail.recipients)

    def close(self) -> None:
        """Nothing to let go of."""


def readable(mail: Composed) -> str:
    """``mail`` as a person reads it, control characters left out, the body cut at 20,000 characters."""
    message = message_from_bytes(mail.data, policy=policy.default)
    lines = [
        "─" * 78,
        f"Envelope: {mail.envelope_sender or '<>'} → {', '.join(mail.recipients)}",
    ]
    lines += [f"{name}: {message[name]}" for name in _SHOWN_HEADERS if message[name] is not None]
    body = message.get_body(("plain", "html"))
    if isinstance(body, EmailMessage):
        text = _text_of(body)
        lines += ["", text[:_MAX_BODY] + ("\n[…]" if len(text) > _MAX_BODY else "")]
    if message.is_multipart():
        lines += [
            f"[attachment: {part.get_filename() or 'without a name'}, {part.get_content_type()}]"
            for part in message.iter_attachments()
        ]
    return "\n".join(_harmless(line) for line in "\n".join(lines).splitlines()) + "\n"


def _text_of(part: EmailMessage) -> str:
    content = part.get_payload(decode=True)
    if not isinstance(content, bytes):
        return ""
    try:
        return content.decode(part.get_content_charset("utf-8"), "replace")
    except LookupError:
        return content.decode("utf-8", "replace")


def _harmless(line: str) -> str:
    return "".join(character if character.isprintable() or character == "\t" else "�" for character in line)
