"""Mails as files in a Maildir, for development, staging, and other programs to pick up."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from pathlib import Path
from urllib.parse import unquote

from outbox_mail.errors import ConfigurationError, ErrorClass, ProviderError
from outbox_mail.mail.providers.base import Composed, Deadline, SendResult
from outbox_mail.mail.providers.url import Query, refuse_user, split

_FOR_NOW = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EAGAIN, errno.EINTR, errno.EMFILE, errno.ENFILE})


class FolderProvider:
    """Writes each mail to ``new/<id of the row>`` of a Maildir, whole or not at all, and on disk before it is accepted.

    A mail that is sent again replaces the file of the same name, so a repeat can't be told from the first time, unless
    a reader has taken the first away: then it is a second file. In front of the mail's own bytes stand ``Return-Path``
    and one ``Delivered-To`` for each envelope recipient, Bcc included: do not show the folder to recipients.
    """

    name = "folder"

    def __init__(self, folder: Path) -> None:
        """Makes the Maildir if needed. Raises ``ConfigurationError`` when that is not allowed."""
        self._folder = folder
        try:
            for part in ("tmp", "new", "cur"):
                (folder / part).mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise ConfigurationError(
                f"provider URL: the Maildir {folder} can't be made ({error.strerror}). Name one that may be written"
            ) from None

    @classmethod
    def from_url(cls, url: str) -> FolderProvider:
        """From ``folder:///absolute/path`` or ``folder:relative/path`` (to the working folder)."""
        parts = split(url)
        refuse_user(parts)
        Query(parts).refuse_the_rest()
        if parts.netloc not in {"", "."}:
            raise ConfigurationError("provider URL: write folder:///absolute/path or folder:relative/path")
        path = unquote(parts.path)
        if parts.netloc == ".":
            path = f".{path}"
        if not path or "\0" in path:
            raise ConfigurationError("provider URL: folder: needs a path, such as folder:///var/mail/outbox")
        return cls(Path(path))

    def send(self, mail: Composed, deadline: Deadline) -> SendResult:
        """Write ``mail``.

        Raises ``ProviderError``: transient when the disk is full or fails, operator when the folder is gone or may not
        be written. Writing to a disk that hangs can't be cut off: ``deadline`` is looked at before it begins.
        """
        deadline.require("before the mail was written")
        temporary = self._folder / "tmp" / f"{mail.id}.{os.getpid()}.{secrets.token_hex(4)}"
        try:
            try:
                _write(temporary, _envelope_headers(mail) + mail.data)
                temporary.replace(self._folder / "new" / str(mail.id))
                _sync_folder(self._folder / "new")
            except BaseException:
                with contextlib.suppress(OSError):
                    temporary.unlink(missing_ok=True)
                raise
        except OSError as error:
            raise ProviderError(
                "folder_failed",
                f"the mail could not be written to {self._folder} ({error.strerror}). Mend its place or rights",
                error_class=ErrorClass.TRANSIENT if error.errno in _FOR_NOW else ErrorClass.OPERATOR,
            ) from None
        return SendResult.all_accepted(mail.recipients, provider_message_id=str(mail.id))

    def close(self) -> None:
        """Nothing to let go of."""


def _envelope_headers(mail: Composed) -> bytes:
    lines = [f"Return-Path: <{mail.envelope_sender}>", *(f"Delivered-To: {address}" for address in mail.recipients)]
    return "".join(f"{line.translate(_NO_LINE_ENDS)}\r\n" for line in lines).encode()


_NO_LINE_ENDS = {ord("\r"): " ", ord("\n"): " "}


def _write(path: Path, content: bytes) -> None:
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
