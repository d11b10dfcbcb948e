"""What producers pass to ``enqueue``: a reference to a file, never its bytes."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, Self

from outbox_mail.errors import InvalidRequestError
from outbox_mail.mail.attachments import fields
from outbox_mail.mail.attachments.folders import store_owned
from outbox_mail.mail.attachments.storage_ref import StorageRef

MAX_BYTES: Final = 25_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A file that goes with the mail. Made by ``ref``, ``from_bytes`` or ``from_file``.

    ``storage_ref`` says where the bytes are: below one of the stores that the service's ``attachment_stores`` allow,
    else the message ends FAILED with the code ``attachment_forbidden``. The bytes are read when the mail is sent, so
    they must stay there until then. ``owned`` files are removed after the last row that refers to them is.

    Raises ``InvalidRequestError`` naming the field: ``filename``, ``content_type``, ``storage_ref``, ``content_id``.
    """

    filename: str
    content_type: str
    storage_ref: str
    owned: bool = False
    content_id: str | None = None
    """For an image that the HTML shows as ``<img src="cid:…">``."""

    def __post_init__(self) -> None:
        _checked("filename", fields.filename, self.filename, "Pass a plain file name, such as 'invoice.pdf'")
        _checked("content_type", fields.content_type, self.content_type, "Pass one, such as 'application/pdf'")
        _checked("storage_ref", StorageRef.parse, self.storage_ref, "Pass such as 'file:///folder/a.pdf' or 's3://…'")
        if not isinstance(self.owned, bool):
            raise InvalidRequestError("owned", f"{type(self.owned).__name__} is not a bool", "Pass True or False")
        if self.content_id is not None:
            _checked("content_id", fields.content_id, self.content_id, "Pass such as 'logo' and write cid:logo")

    @classmethod
    def ref(
        cls,
        *,
        filename: str,
        content_type: str | None = None,
        storage_ref: str,
        owned: bool = False,
        content_id: str | None = None,
    ) -> Self:
        """Refer to a file that is there already; nothing is read or written.

        Without ``content_type`` the file's name tells it. ``owned=True`` hands the file over: it is removed after the
        last row that refers to it is.
        """
        if content_type is None and isinstance(filename, str):
            content_type = fields.guessed_content_type(filename)
        return cls(
            filename=filename,
            content_type=content_type,
            storage_ref=storage_ref,
            owned=owned,
            content_id=content_id,
        )

    @classmethod
    def from_bytes(
        cls,
        data: bytes,
        *,
        filename: str,
        store: str,
        content_type: str | None = None,
        content_id: str | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> Self:
        """Write ``data`` into ``store`` as a new owned file, and refer to it.

        ``store`` is a folder such as ``file:///var/lib/app/mail-files`` or ``s3://bucket/mail``. The file is there when
        the call returns, so call it before the commit of the row: after a rollback nobody refers to it, and the sweep
        removes it later. A local folder must exist, and is written without fsspec; every other store needs fsspec
        and its driver.

        Raises ``InvalidRequestError`` naming the field (``data`` when it is larger than ``max_bytes``), and
        ``AttachmentError`` (transient, ``attachment_store_unavailable``) when the store can't be written.
        """
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise InvalidRequestError("data", f"{type(data).__name__} is not bytes", "Pass bytes")
        if len(data) > max_bytes:
            raise InvalidRequestError("data", f"it has {len(data)} bytes", f"Use {max_bytes} at most, or pass a link")
        return cls._stored(io.BytesIO(data), filename, store, content_type, content_id)

    @classmethod
    def from_file(
        cls,
        path: str | Path,
        *,
        store: str,
        filename: str | None = None,
        content_type: str | None = None,
        content_id: str | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> Self:
        """Copy the local file ``path`` into ``store`` as a new owned file, and refer to it.

        As ``from_bytes``, in small pieces. Without ``filename`` the reader sees the file's own name. Raises
        ``InvalidRequestError`` naming ``path`` when it is not a readable file or larger than ``max_bytes``.
        """
        source = Path(path)
        try:
            if not source.is_file():
                raise InvalidRequestError("path", f"{str(source)!r} is not a file", "Pass the path of a file")
            size_bytes = source.stat().st_size
            if size_bytes > max_bytes:
                raise InvalidRequestError(
                    "path", f"{str(source)!r} has {size_bytes} bytes", f"Use {max_bytes} at most, or pass a link"
                )
            stream = source.open("rb")
        except (OSError, ValueError) as error:
            if isinstance(error, InvalidRequestError):
                raise
            raise InvalidRequestError(
                "path", f"{str(source)!r} can't be read: {type(error).__name__}", "Check that it is there and readable"
            ) from None
        with stream:
            return cls._stored(stream, source.name if filename is None else filename, store, content_type, content_id)

    @classmethod
    def _stored(
        cls, stream: BinaryIO, filename: str, store: str, content_type: str | None, content_id: str | None
    ) -> Self:
        # Everything is checked before the first byte is written.
        folder: StorageRef = _checked("store", StorageRef.parse, store, "Pass a folder, such as 'file:///folder'")
        draft = cls.ref(
            filename=filename,
            content_type=content_type,
            storage_ref=f"{folder}/new",
            owned=True,
            content_id=content_id,
        )
        return cls(
            filename=draft.filename,
            content_type=draft.content_type,
            storage_ref=store_owned(folder, stream, filename=draft.filename),
            owned=True,
            content_id=content_id,
        )

    def as_json(self) -> dict[str, Any]:
        """What the row holds."""
        row: dict[str, Any] = {
            "filename": self.filename,
            "content_type": self.content_type,
            "storage_ref": self.storage_ref,
        }
        if self.owned:
            row["owned"] = True
        if self.content_id is not None:
            row["content_id"] = self.content_id
        return row


def _checked(field: str, check: Any, value: object, advice: str) -> Any:
    try:
        return check(value)
    except ValueError as problem:
        raise InvalidRequestError(field, str(problem), advice) from None
