"""Where attachments may be read from, and nowhere else."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from outbox_mail.errors import AttachmentError, ConfigurationError, ErrorClass
from outbox_mail.mail.attachments.folders import (
    Folder,
    TooLargeError,
    open_folder,
    owned_before,
    raise_unavailable,
)
from outbox_mail.mail.attachments.storage_ref import StorageRef
from outbox_mail.mail.compose.content import LoadedAttachment
from outbox_mail.mail.message import AttachmentRef

_SHOWN: Final = 200


class Stores:
    """The stores that the settings allow. One instance serves all threads, and may be made before a fork."""

    def __init__(
        self, allowed: Sequence[str], *, max_file_bytes: int = 10_000_000, max_mail_bytes: int = 25_000_000
    ) -> None:
        """``allowed`` are folders: ``file:///var/lib/app/mail-files``, ``s3://bucket/prefix``, ``memory://files``.

        Raises ``ConfigurationError`` for one that is malformed or whose driver is not installed.
        """
        self._max_file_bytes = max_file_bytes
        self._max_mail_bytes = max_mail_bytes
        self._folders: list[tuple[StorageRef, Folder]] = []
        for text in allowed:
            try:
                ref = StorageRef.parse(text.rstrip("/"))
                self._folders.append((ref, open_folder(ref)))
            except (ValueError, ImportError) as problem:
                raise ConfigurationError(
                    f"attachment_stores: {text.partition('://')[0]}://…: {problem}. "
                    "Write a folder such as file:///var/lib/app/mail-files or s3://bucket/prefix"
                ) from None

    def load(
        self, refs: Sequence[AttachmentRef], *, timeout_seconds: float | None = None
    ) -> tuple[LoadedAttachment, ...]:
        """Read all attachments of one mail into memory, each once, in order.

        Raises ``AttachmentError``, permanent with the code ``attachment_invalid`` (the reference is malformed, or not
        a file), ``attachment_forbidden`` (not below an allowed store, or through a link), ``attachment_missing`` or
        ``attachment_too_large``; transient with ``attachment_store_unavailable`` (the store can't be reached, or
        ``timeout_seconds`` ran out). The time is a total for all files; how strictly it is kept depends on the store:
        asynchronous drivers are cut off, a local file is looked after between pieces of 1 MiB, and other drivers only
        between files.
        """
        give_up_at = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        loaded = []
        left_bytes = self._max_mail_bytes
        for ref in refs:
            data = self._read(ref, left_bytes, give_up_at)
            left_bytes -= len(data)
            loaded.append(LoadedAttachment(ref.filename, ref.content_type, data, ref.content_id))
        return tuple(loaded)

    def remove(self, storage_ref: str) -> bool:
        """Remove an owned file; False when it was gone already. Who else refers to it is for the caller to know.

        Raises ``AttachmentError`` as ``load`` does.
        """
        ref, folder, parts = self._located(storage_ref)
        try:
            folder.remove(parts)
        except FileNotFoundError:
            return False
        except AttachmentError as error:
            raise AttachmentError(error.code, f"{_shown(storage_ref)}: {error}") from None
        except Exception as error:  # noqa: BLE001 - drivers raise whatever their SDK does
            raise_unavailable(ref, "changed", error)
        return True

    def list_owned(self, prefix: str, older_than_seconds: float) -> Iterator[str]:
        """References of the files below ``prefix`` that ``Attachment`` wrote longer ago than that, oldest first.

        ``prefix`` is one of the allowed stores. Only files that ``Attachment.from_bytes`` and ``from_file`` named are
        listed, by the time in their names, so a store may be shared with others. For a sweep: a file that no row
        refers to after a day belongs to a transaction that was rolled back.

        Raises ``AttachmentError`` as ``load`` does, also in the middle.
        """
        found = next((store for store in self._folders if str(store[0]) == prefix.rstrip("/")), None)
        if found is None:
            raise AttachmentError("attachment_forbidden", f"{_shown(prefix)} is not one of attachment_stores")
        ref, folder = found
        moment = datetime.now(UTC) - timedelta(seconds=older_than_seconds)
        try:
            yield from owned_before(ref, folder, moment)
        except AttachmentError:
            raise
        except Exception as error:  # noqa: BLE001 - drivers raise whatever their SDK does
            raise_unavailable(ref, "listed", error)

    @property
    def allowed(self) -> tuple[str, ...]:
        """The allowed stores, in canonical form."""
        return tuple(str(ref) for ref, _ in self._folders)

    def _located(self, storage_ref: str) -> tuple[StorageRef, Folder, tuple[str, ...]]:
        try:
            ref = StorageRef.parse(storage_ref)
        except ValueError as problem:
            raise AttachmentError(
                "attachment_forbidden",
                f"storage_ref {_shown(storage_ref)}: {problem}. Write a plain path below an allowed store",
            ) from None
        for root, folder in self._folders:
            if (parts := ref.below(root)) is not None:
                return ref, folder, parts
        raise AttachmentError(
            "attachment_forbidden",
            f"storage_ref {_shown(storage_ref)} is not below a store that attachment_stores allows. "
            "Add its folder to OUTBOX_MAIL_ATTACHMENT_STORES, or store the file elsewhere",
        )

    def _read(self, wanted: AttachmentRef, left_bytes: int, give_up_at: float | None) -> bytes:
        ref, folder, parts = self._located(wanted.storage_ref)
        place = f"attachment {_shown(wanted.filename)} at {_shown(wanted.storage_ref)}"
        max_bytes = min(self._max_file_bytes, left_bytes)
        timeout_seconds = None
        if give_up_at is not None and (timeout_seconds := give_up_at - time.monotonic()) <= 0:
            raise AttachmentError(
                "attachment_store_unavailable",
                f"{place}: no time was left to read it. Look for a slow store",
                error_class=ErrorClass.TRANSIENT,
            )
        try:
            return folder.read(parts, max_bytes, timeout_seconds)
        except FileNotFoundError:
            raise AttachmentError(
                "attachment_missing", f"{place}: the file is not there. Put it back and requeue the message"
            ) from None
        except TooLargeError as error:
            size = f"{error.size_bytes} bytes" if error.size_bytes is not None else "too many bytes"
            limit = (
                f"{self._max_file_bytes} are allowed (max_attachment_bytes)"
                if max_bytes == self._max_file_bytes
                else f"{left_bytes} are left of the {self._max_mail_bytes} of one mail (max_mail_bytes)"
            )
            raise AttachmentError("attachment_too_large", f"{place}: it has {size}, {limit}. Send a link") from None
        except AttachmentError as error:
            raise AttachmentError(error.code, f"{place}: {error}") from None
        except Exception as error:  # noqa: BLE001 - drivers raise whatever their SDK does
            raise_unavailable(ref, "read", error)


def _shown(text: object) -> str:
    return repr(text if len(str(text)) <= _SHOWN else f"{str(text)[:_SHOWN]}…")
