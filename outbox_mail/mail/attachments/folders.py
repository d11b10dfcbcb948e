"""A store is a folder: on this machine, or wherever fsspec reaches. Both are read, written and listed the same way."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import BinaryIO, Final, NoReturn, Protocol

from uuid_utils import uuid7

from outbox_mail.errors import AttachmentError, ErrorClass
from outbox_mail.mail.attachments.storage_ref import StorageRef

# Day, then a UUIDv7: unique, in order, and its age can be read from the name, which no store can get wrong.
_OWNED: Final = re.compile(r"(\d{4}-\d{2}-\d{2})/([0-9a-f]{32})(?:\.[a-z0-9]{1,10})?")
_SUFFIX: Final = re.compile(r"\.[a-z0-9]{1,10}")


class Folder(Protocol):
    """One store. Names are parts below it, already checked by ``StorageRef``.

    Each method raises ``FileNotFoundError`` when the name is not there, ``AttachmentError`` for what is no fault of
    the store's, and any other exception when the store can't be reached or used just now.
    """

    def read(self, parts: tuple[str, ...], max_bytes: int, timeout_seconds: float | None) -> bytes:
        """The file's bytes; raises ``TooLargeError`` before reading more than ``max_bytes``."""
        ...

    def write(self, parts: tuple[str, ...], stream: BinaryIO) -> None:
        """Write a new file, durable when the call returns, never visible half-written under its name."""
        ...

    def remove(self, parts: tuple[str, ...]) -> None:
        """Remove the file."""
        ...

    def days(self) -> list[str]:
        """The names directly below the folder that may be days."""
        ...

    def names(self, day: str) -> list[str]:
        """The names below one day."""
        ...


class TooLargeError(Exception):
    """A file has more bytes than are left; ``size_bytes`` when the store told."""

    def __init__(self, size_bytes: int | None) -> None:
        super().__init__()
        self.size_bytes = size_bytes


def open_folder(ref: StorageRef) -> Folder:
    """The store that ``ref`` names; nothing is opened yet. Raises ``ImportError`` when its driver is not installed."""
    if ref.scheme == "file":
        from outbox_mail.mail.attachments.local import LocalFolder  # noqa: PLC0415 - only when used

        return LocalFolder("/" + "/".join(ref.parts))
    from outbox_mail.mail.attachments.remote import RemoteFolder  # noqa: PLC0415 - needs fsspec

    return RemoteFolder(ref)


def store_owned(folder: StorageRef, stream: BinaryIO, *, filename: str) -> str:
    """Write ``stream`` under a new unique name in ``folder``; returns the name's reference."""
    id_ = uuid7()
    suffix = PurePosixPath(filename).suffix.lower()
    day = datetime.fromtimestamp(id_.timestamp / 1000, UTC).date().isoformat()
    parts = (day, f"{id_.hex}{suffix if _SUFFIX.fullmatch(suffix) else ''}")
    try:
        open_folder(folder).write(parts, stream)
    except ImportError as error:
        raise AttachmentError(
            "attachment_store_unknown",
            f"store: {error}. Install the driver for {folder.scheme}://, or use a file:// folder",
        ) from None
    except AttachmentError:
        raise
    except Exception as error:  # noqa: BLE001 - drivers raise whatever their SDK does
        raise_unavailable(folder, "written", error)
    return str(folder.child(*parts))


def owned_before(ref: StorageRef, folder: Folder, moment: datetime) -> Iterator[str]:
    """References of the files that ``store_owned`` wrote before ``moment``; never a file of anybody else's."""
    last_day = moment.astimezone(UTC).date().isoformat()
    for day in sorted(folder.days()):
        if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", day) or day > last_day:
            continue
        for name in sorted(folder.names(day)):
            match = _OWNED.fullmatch(f"{day}/{name}")
            if match and int(match[2][:12], 16) / 1000 < moment.timestamp():
                yield str(ref.child(day, name))


def raise_unavailable(ref: StorageRef, doing: str, error: Exception) -> NoReturn:
    """The transient error for a store that does not work. The driver's text may hold secrets: only its kind is told."""
    raise AttachmentError(
        "attachment_store_unavailable",
        f"{str(ref)!r} can't be {doing} just now ({type(error).__name__}). Check the store and its credentials",
        error_class=ErrorClass.TRANSIENT,
    ) from None
