"""The header block: fixed order, folded, ASCII unless an address has letters outside ASCII before its ``@``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from outbox_mail.errors import ComposeError
from outbox_mail.mail.addresses import Mailbox
from outbox_mail.mail.encoded_words import LINE, encoded_words, folded
from outbox_mail.mail.headers import goes_as_it_is

MAX_SUBJECT: Final = 2000

_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_BLANKS: Final = re.compile(r"[\x00-\x20\x7f-\x9f\u2028\u2029]+")
_SURROGATES: Final = re.compile(r"[\ud800-\udfff]")


def head_of(
    *,
    sender: Mailbox,
    to: Sequence[Mailbox],
    cc: Sequence[Mailbox],
    reply_to: Sequence[Mailbox],
    subject: str,
    dated_at: datetime,
    message_id: str,
    headers: Mapping[str, str],
) -> str:
    """All fields but those of the content. ``headers`` are checked ones; they stand in the order of their names.

    ``Auto-Submitted: auto-generated`` unless ``headers`` have their own. Without ``to`` and ``cc`` the recipients are
    undisclosed. Raises ``ComposeError`` (``invalid_subject``, ``invalid_date``).
    """
    lines = [mailbox_field("From", [sender])]
    if to:
        lines.append(mailbox_field("To", to))
    elif not cc:
        lines.append("To: undisclosed-recipients:;\r\n")
    if cc:
        lines.append(mailbox_field("Cc", cc))
    if reply_to:
        lines.append(mailbox_field("Reply-To", reply_to))
    lines.append(text_field("Subject", _subject(subject)))
    lines.append(f"Date: {_date(dated_at)}\r\n")
    lines.append(f"Message-ID: {message_id}\r\n")
    own = {name.lower(): (name, value) for name, value in headers.items()}
    own.setdefault("auto-submitted", ("Auto-Submitted", "auto-generated"))
    for _, (name, value) in sorted(own.items()):
        lines.append(folded(name, value.split(" ")) if goes_as_it_is(name, value) else text_field(name, value))
    lines.append("MIME-Version: 1.0\r\n")
    return "".join(lines)


def mailbox_field(name: str, mailboxes: Sequence[Mailbox]) -> str:
    """A list of mailboxes, folded between them and within names where it must be."""
    tokens: list[str] = []
    column = len(name) + 2
    for mailbox in mailboxes:
        tokens += mailbox.header_tokens(column)
        tokens[-1] += ","
        column = 1
    tokens[-1] = tokens[-1][:-1]
    return folded(name, tokens)


def text_field(name: str, value: str) -> str:
    """Free text on one line, spaces never doubled: as it is where it can be, else as encoded words."""
    if goes_as_it_is(name, value):
        if len(name) + len(value) + 2 <= LINE:
            return f"{name}: {value}\r\n"
        return folded(name, value.split(" "))
    return folded(name, encoded_words(value, len(name) + 2))


def _subject(subject: str) -> str:
    if len(subject) > MAX_SUBJECT:
        raise ComposeError(
            "invalid_subject", f"the subject has {len(subject)} characters. Use {MAX_SUBJECT} at most in the template"
        )
    return _SURROGATES.sub("?", _BLANKS.sub(" ", subject).strip(" "))


def _date(moment: datetime) -> str:
    if moment.utcoffset() is None:
        raise ComposeError("invalid_date", "created_at, send_at: a time without a zone. Mend the row and requeue it")
    try:
        utc = moment.astimezone(UTC)
    except OverflowError:
        raise ComposeError(
            "invalid_date", "created_at, send_at: a time that no calendar has. Mend the row and requeue it"
        ) from None
    day, month = _DAYS[utc.weekday()], _MONTHS[utc.month - 1]
    return f"{day}, {utc.day:02} {month} {utc.year:04} {utc.hour:02}:{utc.minute:02}:{utc.second:02} +0000"
