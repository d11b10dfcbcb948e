"""One row and its rendered template → one mail, without ``email.message``: what goes in is what comes out, quickly."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from typing import Any, Final

from outbox_mail.errors import ComposeError, ErrorClass
from outbox_mail.mail.addresses import Mailbox, MailboxError, parse_mailbox
from outbox_mail.mail.compose.content import LoadedAttachment, RenderedContent
from outbox_mail.mail.compose.entity import Entity, Multipart
from outbox_mail.mail.compose.files import split_files
from outbox_mail.mail.compose.head import head_of
from outbox_mail.mail.compose.text import text_leaf
from outbox_mail.mail.headers import HeaderError, checked
from outbox_mail.mail.message import Message
from outbox_mail.mail.providers.base import Composed, State

MAX_RECIPIENTS: Final = 500
_SETTLED: Final = frozenset({State.ACCEPTED.value, State.REFUSED.value})
_MEND: Final = "Mend the row and requeue it"


def compose(
    message: Message,
    content: RenderedContent,
    attachments: Sequence[LoadedAttachment],
    *,
    default_sender: str,
    message_id_domain: str,
) -> Composed:
    """Make the mail. Its bytes depend on the row, the template's output and the two settings, on nothing else.

    ``recipients`` are those of to, cc and bcc, each once, that ``message.outcomes`` does not say are accepted or
    refused; they may be none. The header shows all of to and cc, and nothing of bcc. The sender is the row's, else the
    template's, else ``default_sender``; the envelope's sender is its address.

    Text and HTML become ``multipart/alternative``; images that the HTML shows by ``cid:`` go with it in
    ``multipart/related``; other attachments follow in ``multipart/mixed``. All is 7-bit but for addresses with letters
    outside ASCII before their ``@``, shown in UTF-8 as RFC 6532 wants them; ``needs_smtputf8`` is then set, also when
    the address itself is settled.

    Nothing in the row is trusted. Raises ``ComposeError``, permanent, that names the field: ``invalid_recipient``,
    ``no_recipient``, ``too_many_recipients``, ``invalid_sender``, ``invalid_reply_to``, ``invalid_header``,
    ``invalid_subject``, ``invalid_date``, ``attachment_invalid``, ``empty_content``. A ``default_sender`` that is no
    mailbox is the operator's fault, with the code ``invalid_default_sender``.

    Memory beyond what was passed in: for each byte of the attachments 1.4 bytes, 1.6 while composing; for each byte of
    text and HTML 5, 6 where nearly all of it is line ends.
    """
    sender = _sender(message, content, default_sender)
    to = _mailboxes("to", message.to, "invalid_recipient")
    cc = _mailboxes("cc", message.cc, "invalid_recipient")
    bcc = _mailboxes("bcc", message.bcc, "invalid_recipient")
    recipients = _unsettled((*to, *cc, *bcc), message.outcomes)
    message_id = f"<{message.id.hex}@{message_id_domain}>"
    entity = _entity(content, attachments, message.id.hex)
    head = head_of(
        sender=sender,
        to=to,
        cc=cc,
        reply_to=_reply_to(message, content),
        subject=content.subject,
        dated_at=message.dated_at,
        message_id=message_id,
        headers=_headers(message.headers),
    ).encode()
    mail = BytesIO()
    mail.write(b"%b%b\r\n" % (head, entity.head))
    entity.write_body(mail.write)
    return Composed(
        id=message.id,
        message_id=message_id,
        envelope_sender=sender.envelope,
        recipients=recipients,
        data=mail.getvalue(),
        needs_smtputf8=not (head.isascii() and all(map(str.isascii, recipients))),
    )


def _sender(message: Message, content: RenderedContent, default_sender: str) -> Mailbox:
    if message.sender is not None:
        return _mailbox("sender", message.sender, "invalid_sender")
    if content.sender is not None:
        return _mailbox("the template's sender", content.sender, "invalid_sender", "Mend the template's manifest")
    try:
        return parse_mailbox(default_sender)
    except MailboxError as error:
        raise ComposeError(
            "invalid_default_sender",
            f"default_sender: {error.problem}. {error.advice}",
            error_class=ErrorClass.OPERATOR,
        ) from None


def _reply_to(message: Message, content: RenderedContent) -> list[Mailbox]:
    if message.reply_to:
        return _mailboxes("reply_to", message.reply_to, "invalid_reply_to")
    return [
        _mailbox("the template's reply_to", item, "invalid_reply_to", "Mend the template's manifest")
        for item in content.reply_to
    ]


def _mailboxes(field: str, items: object, code: str) -> list[Mailbox]:
    if items is None:
        return []
    if isinstance(items, (str, bytes)) or not isinstance(items, Sequence):
        raise ComposeError(code, f"{field}: {type(items).__name__} is not a list. {_MEND}")
    if len(items) > MAX_RECIPIENTS:
        raise _too_many(field, len(items))
    return [_mailbox(f"{field}[{index}]", item, code) for index, item in enumerate(items)]


def _mailbox(place: str, item: object, code: str, advice: str = _MEND) -> Mailbox:
    if not isinstance(item, str):
        raise ComposeError(code, f"{place}: {type(item).__name__} is not text. {advice}")
    try:
        return parse_mailbox(item)
    except MailboxError as error:
        raise ComposeError(code, f"{place}: {error.problem}. {advice}") from None


def _too_many(field: str, count: int) -> ComposeError:
    return ComposeError(
        "too_many_recipients", f"{field}: there are {count} addresses, {MAX_RECIPIENTS} are allowed. Use several rows"
    )


def _unsettled(mailboxes: Iterable[Mailbox], outcomes: Mapping[str, Any] | None) -> tuple[str, ...]:
    addresses = dict.fromkeys([mailbox.envelope for mailbox in mailboxes])
    if not addresses:
        raise ComposeError("no_recipient", f"to, cc, bcc: there is no recipient. {_MEND}")
    if len(addresses) > MAX_RECIPIENTS:
        raise _too_many("to, cc, bcc", len(addresses))
    for address, outcome in (outcomes or {}).items():
        if isinstance(outcome, Mapping) and outcome.get("state") in _SETTLED:
            local_part, at, domain = address.rpartition("@")
            addresses.pop(local_part + at + domain.lower(), None)
    return tuple(addresses)


def _headers(headers: object) -> dict[str, str]:
    try:
        return checked(headers)
    except HeaderError as error:
        raise ComposeError(
            "invalid_header", f"{error.place('headers')}: {error.problem}. {error.advice}. {_MEND}"
        ) from None


def _entity(content: RenderedContent, attachments: Sequence[LoadedAttachment], token: str) -> Entity:
    """The tree of parts. Boundaries hold ``=_``, which neither base64 nor quoted-printable ever has."""
    stem = f"=_{token}"
    inline, attached = split_files(attachments, content.html)
    parts: list[Entity] = []
    if content.text is not None:
        parts.append(text_leaf("plain", content.text, stem.encode()))
    if content.html is not None:
        html: Entity = text_leaf("html", content.html, stem.encode())
        if inline:
            html = Multipart('related; type="text/html"', f"{stem}_3", [html, *inline])
        parts.append(html)
    if not parts:
        raise ComposeError("empty_content", "the template gave neither text nor HTML. Mend it and requeue the message")
    body = parts[0] if len(parts) == 1 else Multipart("alternative", f"{stem}_2", parts)
    return Multipart("mixed", f"{stem}_1", [body, *attached]) if attached else body
