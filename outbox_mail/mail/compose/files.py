"""Attachments and inline images as parts of a mail."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

from outbox_mail.errors import ComposeError
from outbox_mail.mail.attachments import fields
from outbox_mail.mail.compose.base64 import write_base64
from outbox_mail.mail.compose.content import LoadedAttachment
from outbox_mail.mail.compose.entity import Write
from outbox_mail.mail.encoded_words import LINE, encoded_words, folded

_PLAIN_NAME: Final = re.compile(r"[ !#-\[\]-~]*")
_NAME_COLUMN: Final = len(' name="')


class File:
    """One attachment, encoded as base64 when it is written and not before.

    A name outside plain ASCII is given twice: as RFC 2231 says in Content-Disposition, and as encoded words in the
    ``name`` of Content-Type, which is what older Outlook and Exchange read. Mozilla and nodemailer do the same. A
    plain ``filename`` beside ``filename*`` would take its place in readers that keep the first or the plain one.
    """

    __slots__ = ("_data", "head")

    def __init__(self, attachment: LoadedAttachment, *, inline: bool) -> None:
        lines = [
            _content_type(attachment),
            "Content-Transfer-Encoding: base64\r\n",
            folded("Content-Disposition", ["inline;" if inline else "attachment;", *_filename(attachment.filename)]),
        ]
        if attachment.content_id is not None:
            lines.append(f"Content-ID: <{attachment.content_id}>\r\n")
        self.head = "".join(lines).encode()
        self._data = attachment.data

    def write_body(self, write: Write) -> None:
        """Write the data."""
        write_base64(write, self._data)


def split_files(attachments: Sequence[LoadedAttachment], html: str | None) -> tuple[list[File], list[File]]:
    """The attachments that ``html`` shows by ``cid:``, and the others; each in its order.

    One with a ``content_id`` that the HTML does not show is an ordinary attachment: readers hide what nothing
    refers to.

    Raises ``ComposeError`` (``attachment_invalid``) for a field that can't stand in a mail.
    """
    inline: list[File] = []
    attached: list[File] = []
    ids = set()
    for index, attachment in enumerate(attachments):
        _require_valid(index, attachment)
        content_id = attachment.content_id
        if content_id in ids:
            raise _invalid(index, "content_id", "another attachment has it")
        if content_id is not None:
            ids.add(content_id)
        shown = content_id is not None and html is not None and _shows(html, content_id)
        (inline if shown else attached).append(File(attachment, inline=shown))
    return inline, attached


def _require_valid(index: int, attachment: LoadedAttachment) -> None:
    for name, check, value in (
        ("filename", fields.filename, attachment.filename),
        ("content_type", fields.content_type, attachment.content_type),
        ("content_id", fields.content_id, attachment.content_id),
    ):
        if value is None and name == "content_id":
            continue
        try:
            check(value)
        except ValueError as problem:
            raise _invalid(index, name, str(problem)) from None


def _invalid(index: int, name: str, problem: str) -> ComposeError:
    return ComposeError(
        "attachment_invalid", f"attachments[{index}].{name}: {problem}. Mend the row's attachments and requeue it"
    )


def _shows(html: str, content_id: str) -> bool:
    either = f"{re.escape(content_id)}|{re.escape(quote(content_id, safe=''))}"
    return re.search(rf"(?i:cid):(?:{either})(?![A-Za-z0-9._+@%-])", html) is not None


def _content_type(attachment: LoadedAttachment) -> str:
    # A row may be written with "a/b;c=d" or "a/b; c=d".
    tokens = [part.strip() for part in attachment.content_type.split(";")]
    if not any(token.lower().startswith("name=") for token in tokens):
        filename = attachment.filename
        if _is_plain(filename):
            tokens.append(f'name="{filename}"')
        else:
            words = encoded_words(filename, _NAME_COLUMN)
            tokens.append(f'name="{words[0]}' + "".join(f"\r\n {word}" for word in words[1:]) + '"')
    return folded("Content-Type", [f"{token};" for token in tokens[:-1]] + tokens[-1:])


def _is_plain(filename: str) -> bool:
    return "=?" not in filename and _PLAIN_NAME.fullmatch(filename) is not None


def _filename(filename: str) -> list[str]:
    """The parameter of Content-Disposition, in pieces of one line each (RFC 2231 §3, §4)."""
    if _is_plain(filename):
        return [f'filename="{filename}"']
    start = "filename*=utf-8''"
    whole = quote(filename, safe="")
    if len(start) + len(whole) < LINE:
        return [start + whole]
    pieces = []
    piece = "filename*0*=utf-8''"
    for character in filename:
        # Characters are not split: some readers decode piece by piece.
        encoded = quote(character, safe="")
        if len(piece) + len(encoded) > LINE - 2:
            pieces.append(f"{piece};")
            piece = f"filename*{len(pieces)}*="
        piece += encoded
    pieces.append(piece)
    return pieces
