"""One connection and the mails that travel on it."""

from __future__ import annotations

import ssl
import time
from collections.abc import Sequence
from typing import Final

from outbox_mail.errors import ErrorClass
from outbox_mail.mail.providers.base import Composed, Deadline, RecipientOutcome, SendResult, State
from outbox_mail.mail.providers.smtp.envelope import body_of, is_sendable, mail_command, rcpt_command
from outbox_mail.mail.providers.smtp.handshake import open_connection, refusal, within
from outbox_mail.mail.providers.smtp.options import SmtpOptions
from outbox_mail.mail.providers.smtp.replies import (
    Reply,
    Stage,
    class_of,
    queue_id,
    wait_hint_seconds,
)
from outbox_mail.mail.providers.smtp.wire import Trouble, WireError

_RCPTS_AT_ONCE: Final = 50
"""Commands and replies in flight must fit into both sides' buffers, or both wait for ever (RFC 2920 §3.1)."""
_NOOP_AFTER_SECONDS: Final = 10.0
_NOOP_SECONDS: Final = 5.0
_QUIT_SECONDS: Final = 1.0
_EARLY_REPLY_SECONDS: Final = 0.2
_ACCEPTED: Final = RecipientOutcome(State.ACCEPTED)


class Session:
    """A connection that has shaken hands. One thread uses it at a time."""

    __slots__ = ("_dirty", "_opened_at", "_options", "_ready", "_used_at", "answered", "handed_over", "mails", "usable")

    def __init__(self, options: SmtpOptions, context: ssl.SSLContext | None, deadline: Deadline) -> None:
        """Open it; raises as ``open_connection`` does."""
        self._options = options
        self._ready = open_connection(options, context, within(deadline, options.connect_seconds))
        self._opened_at = self._used_at = time.monotonic()
        self._dirty = False
        self.mails = 0
        self.usable = True
        """False once the server said 421 or broke the protocol."""
        self.answered = False
        """Whether anything of the present mail was answered."""
        self.handed_over = False
        """Whether all of the present mail, its final dot included, was given to the kernel: from there on the server
        may have it, whatever happens."""

    def transact(self, mail: Composed, deadline: Deadline) -> SendResult:
        """Send one mail.

        Raises ``ProviderError`` when the server refused it, ``WireError`` when the connection failed;
        ``handed_over`` then tells whether the server may have the mail.
        """
        self.answered = self.handed_over = False
        self._ready.wire.deadline = deadline
        opening = mail_command(mail, self._ready.extensions)
        body = body_of(mail.data)
        outcomes: dict[str, RecipientOutcome] = {}
        hints: list[float] = []
        sendable = []
        for address in mail.recipients:
            if is_sendable(address):
                sendable.append(address)
            else:
                outcomes[address] = RecipientOutcome(
                    State.REFUSED, "invalid_address", "not an address that SMTP can carry; nothing was sent to it"
                )
        if not sendable:
            return SendResult(outcomes)
        self.mails += 1
        if self._options.pipelining and "PIPELINING" in self._ready.extensions:
            replies = self._envelope_at_once(opening, sendable)
        else:
            replies = self._envelope_step_by_step(opening, sendable)
        for address, reply in replies.items():
            outcomes[address] = self._outcome(reply, hints)
        provider_message_id = None
        if any(reply.positive for reply in replies.values()):
            provider_message_id = queue_id(self._deliver(body))
        self._used_at = time.monotonic()
        return SendResult(outcomes, provider_message_id, max(hints, default=None))

    def is_fit(self, deadline: Deadline) -> bool:
        """Whether the connection may carry one more mail. One that idled for more than 10 s is asked by NOOP."""
        now = time.monotonic()
        idle = now - self._used_at
        if self.is_worn(now) or not self._ready.wire.is_quiet():
            return False
        if idle < _NOOP_AFTER_SECONDS:
            return True
        wire = self._ready.wire
        wire.deadline = within(deadline, min(_NOOP_SECONDS, deadline.remaining_seconds() / 2))
        try:
            wire.write(b"NOOP\r\n")
            return wire.read_reply().code == 250
        except WireError:
            return False

    def is_worn(self, now: float) -> bool:
        """Whether it is too old, was idle for too long, or has carried enough."""
        options = self._options
        return (
            self.mails >= options.max_mails
            or now - self._opened_at > options.max_age_seconds
            or now - self._used_at > options.keep_seconds
        )

    def quit(self, *, wait: bool) -> None:
        """Part politely and close. Nothing that goes wrong here matters: every mail has been settled."""
        wire = self._ready.wire
        wire.deadline = Deadline.after(_QUIT_SECONDS)
        try:
            wire.write(b"QUIT\r\n")
            if wait:
                wire.read_reply()
        except WireError:
            pass
        finally:
            wire.close()

    def abandon(self) -> None:
        """Close without a word."""
        self._ready.wire.close()

    def _envelope_at_once(self, opening: bytes, recipients: list[str]) -> dict[str, Reply]:
        """MAIL, RCPT and DATA in one write. On return the server waits for the body if it accepted any recipient."""
        wire = self._ready.wire
        group = [b"RSET\r\n"] if self._dirty else []
        group.append(opening)
        replies: dict[str, Reply] = {}
        mail_reply: Reply | None = None
        for start in range(0, len(recipients), _RCPTS_AT_ONCE):
            chunk = recipients[start : start + _RCPTS_AT_ONCE]
            last = start + _RCPTS_AT_ONCE >= len(recipients)
            group += map(rcpt_command, chunk)
            if last:
                group.append(b"DATA\r\n")
            wire.write(b"".join(group))
            group = []
            if mail_reply is None:
                self._read_reset()
                mail_reply = self._read(Stage.MAIL)
            for address in chunk:
                replies[address] = self._read(Stage.RCPT)
            if last:
                self._settle_data(self._read(Stage.DATA), mail_reply, replies)
            if not mail_reply.positive:
                raise refusal(self._options, self._expected(mail_reply), Stage.MAIL)
        return replies

    def _settle_data(self, reply: Reply, mail_reply: Reply, replies: dict[str, Reply]) -> None:
        wanted = mail_reply.positive and any(each.positive for each in replies.values())
        if wanted and reply.code != 354:
            raise refusal(self._options, self._expected(reply), Stage.DATA)
        if not wanted and reply.code == 354:
            # The server waits for a mail to nobody: the dot alone ends that (RFC 2920 §3.1).
            self._ready.wire.write(b".\r\n")
            self._read(Stage.DATA)

    def _envelope_step_by_step(self, opening: bytes, recipients: list[str]) -> dict[str, Reply]:
        wire = self._ready.wire
        if self._dirty:
            wire.write(b"RSET\r\n")
            self._read_reset()
        wire.write(opening)
        self._dirty = True
        reply = self._read(Stage.MAIL)
        if not reply.positive:
            raise refusal(self._options, self._expected(reply), Stage.MAIL)
        replies = {}
        for address in recipients:
            wire.write(rcpt_command(address))
            replies[address] = self._read(Stage.RCPT)
        if any(reply.positive for reply in replies.values()):
            wire.write(b"DATA\r\n")
            reply = self._read(Stage.DATA)
            if reply.code != 354:
                raise refusal(self._options, self._expected(reply), Stage.DATA)
        return replies

    def _deliver(self, body: Sequence[bytes]) -> Reply:
        wire = self._ready.wire
        try:
            for piece in body:
                wire.write(piece)
        except WireError as error:
            if error.trouble is Trouble.LOST and (early := self._early_reply()):
                raise refusal(self._options, early, Stage.DATA) from None
            raise
        self.handed_over = True
        reply = wire.read_reply()
        if not reply.positive and not reply.negative:
            raise WireError(Trouble.GARBAGE, f"the server answered {reply.code} to the mail's end")
        self._dirty = False
        if reply.code == 421:
            self.usable = False
        if not reply.positive:
            raise refusal(self._options, reply, Stage.DATA)
        return reply

    def _early_reply(self) -> Reply | None:
        """What a server said before it cut a mail short (most often: too large); the connection is over then."""
        self.usable = False
        wire = self._ready.wire
        wire.deadline = within(wire.deadline, _EARLY_REPLY_SECONDS)
        try:
            reply = wire.read_reply()
        except WireError:
            return None
        return reply if reply.negative else None

    def _read_reset(self) -> None:
        if self._dirty and not self._ready.wire.read_reply().positive:
            raise WireError(Trouble.LOST, "the server did not accept RSET on a kept connection")
        self._dirty = True

    def _read(self, stage: Stage) -> Reply:
        """A reply to a command of this mail. 421 ends the connection, so nothing behind it is waited for."""
        reply = self._ready.wire.read_reply()
        if reply.code == 421:
            self.usable = False
            if not self.answered and self.mails > 1:
                # Said before it saw this mail: it had closed a connection that idled.
                raise WireError(Trouble.LOST, "the server ended the kept connection with 421")
            raise refusal(self._options, reply, stage)
        self.answered = True
        return reply

    def _expected(self, reply: Reply) -> Reply:
        if not reply.negative:
            self.usable = False
        return reply

    def _outcome(self, reply: Reply, hints: list[float]) -> RecipientOutcome:
        if reply.positive:
            return _ACCEPTED
        error_class = class_of(reply, Stage.RCPT)
        if not reply.negative or error_class is ErrorClass.OPERATOR:
            # The server may be waiting for the body by now.
            self.usable = False
            raise refusal(self._options, reply, Stage.RCPT)
        if error_class is ErrorClass.TRANSIENT:
            if hint := wait_hint_seconds(reply):
                hints.append(hint)
            return RecipientOutcome(State.DEFERRED, str(reply.code), self._options.scrub(reply.text))
        return RecipientOutcome(State.REFUSED, str(reply.code), self._options.scrub(reply.text))
