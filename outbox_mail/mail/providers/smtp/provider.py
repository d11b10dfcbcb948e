"""SMTP as a provider: kept connections, one repeat for a stale one, and what a failure means for the mail."""

from __future__ import annotations

import os
import time
from collections import deque
from typing import Final
from urllib.parse import urlsplit

from outbox_mail.errors import ErrorClass, ProviderError
from outbox_mail.mail.providers.base import Composed, Deadline, SendResult
from outbox_mail.mail.providers.smtp.options import SmtpOptions, Tls, options_from_url
from outbox_mail.mail.providers.smtp.session import Session
from outbox_mail.mail.providers.smtp.wire import Trouble, WireError

_CLOSE_SECONDS: Final = 1.0


class SmtpProvider:
    """Hands mails to one SMTP server.

    Connections that are not in use wait on a stack that all threads share, the last used on top: there are never more
    than sends at one time, and no thread that ends leaves one behind. They are used by the process that opened them
    only: a forked child opens its own.
    """

    name = "smtp"

    def __init__(self, options: SmtpOptions) -> None:
        """Opens nothing yet. Raises ``ConfigurationError`` when ``ca_file`` can't be read."""
        self._options = options
        self._context = None if options.tls is Tls.NONE else options.ssl_context()
        self._pid = os.getpid()
        self._idle: deque[Session] = deque()

    @classmethod
    def from_url(cls, url: str) -> SmtpProvider:
        """From ``smtp://`` or ``smtps://``; raises ``ConfigurationError``."""
        return cls(options_from_url(urlsplit(url)))

    def send(self, mail: Composed, deadline: Deadline) -> SendResult:
        """Hand ``mail`` over before ``deadline``, whatever the server does.

        A connection lost before the mail was wholly handed over is transient, and repeated at once on a fresh
        connection if it was a kept one; lost or silent afterwards, the outcome is unknown (RFC 1047). A refusal of one
        recipient is in the result; of the whole mail, a ``ProviderError`` coded by the server's reply (``smtp_550``).
        The server's words are in texts, bounded and cleaned, never in codes.
        """
        session = self._take(deadline)
        kept = session is not None
        while True:
            session = session or self._open(deadline)
            try:
                result = session.transact(mail, deadline)
            except WireError as error:
                session.abandon()
                if kept and not session.handed_over and error.trouble is Trouble.LOST:
                    # The others have most likely gone stale with it.
                    self._abandon_idle()
                    session, kept = None, False
                    continue
                raise self._error(error, handed_over=session.handed_over) from None
            except ProviderError:
                self._put_back(session)
                raise
            except BaseException:
                session.abandon()
                raise
            self._put_back(session)
            return result

    def close(self) -> None:
        """Part from the server on all connections that are not in use. Waits about two seconds at most."""
        self._forget_parent()
        patience = Deadline.after(_CLOSE_SECONDS)
        while session := self._pop():
            session.quit(wait=patience.remaining_seconds() > 0)

    def _open(self, deadline: Deadline) -> Session:
        try:
            return Session(self._options, self._context, deadline)
        except WireError as error:
            raise self._error(error, handed_over=False) from None

    def _error(self, error: WireError, *, handed_over: bool) -> ProviderError:
        if handed_over:
            return ProviderError(
                "outcome_unknown",
                f"{self._options.host} may have taken the mail: {error} after all of it was sent",
                error_class=ErrorClass.UNKNOWN,
            )
        return ProviderError(error.trouble.value, f"{self._options.host}: {error}", error_class=ErrorClass.TRANSIENT)

    def _take(self, deadline: Deadline) -> Session | None:
        self._forget_parent()
        self._part_from_worn()
        while session := self._pop():
            if session.is_fit(deadline):
                return session
            session.quit(wait=False)
        return None

    def _put_back(self, session: Session) -> None:
        if session.usable:
            self._idle.append(session)
        else:
            session.abandon()

    def _pop(self) -> Session | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _part_from_worn(self) -> None:
        """Close what lies at the bottom of the stack, unused for long."""
        now = time.monotonic()
        while True:
            try:
                bottom = self._idle.popleft()
            except IndexError:
                return
            if not bottom.is_worn(now):
                self._idle.appendleft(bottom)
                return
            bottom.quit(wait=False)

    def _abandon_idle(self) -> None:
        while session := self._pop():
            session.abandon()

    def _forget_parent(self) -> None:
        pid = os.getpid()
        if pid != self._pid:
            inherited, self._idle, self._pid = self._idle, deque(), pid
            for session in inherited:
                # Only this process's copy of the descriptor: the parent's connection goes on.
                session.abandon()
