"""A folder on this machine. Symbolic links below it are never followed, so nothing outside of it can be reached."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from typing import BinaryIO, Final

from outbox_mail.errors import AttachmentError
from outbox_mail.mail.attachments.folders import TooLargeError

_CHUNK_BYTES: Final = 1 << 20
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# O_NONBLOCK: opening a named pipe would else wait for its writer for ever.
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class LocalFolder:
    """Each part of a name is opened relative to the one before and without following links.

    A check of the resolved path before the open could be outrun by whoever swaps a folder for a link in between.
    The store's folder itself may be or go through a link: that is the operator's choice.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def read(self, parts: tuple[str, ...], max_bytes: int, timeout_seconds: float | None) -> bytes:
        """As in ``Folder``. The time is looked at between pieces of 1 MiB: one hanging read (NFS) can't be cut off."""
        give_up_at = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        with self._folder_of(parts) as folder:
            file = _open_file(parts[-1], folder)
        try:
            _require_regular(file, max_bytes)
            stream = open(file, "rb", buffering=0)  # noqa: PTH123, SIM115 - a descriptor, closed below
        except BaseException:
            os.close(file)
            raise
        with stream:
            content = io.BytesIO()
            while chunk := stream.read(min(_CHUNK_BYTES, max_bytes + 1 - content.tell())):
                content.write(chunk)
                # It may have grown since.
                if content.tell() > max_bytes:
                    raise TooLargeError(None)
                if give_up_at is not None and time.monotonic() > give_up_at:
                    raise TimeoutError
            return content.getvalue()

    def write(self, parts: tuple[str, ...], stream: BinaryIO) -> None:
        """As in ``Folder``. The folder of the day is made when needed, the store's own folder is not."""
        with self._folder_of(parts[:1]) as root, contextlib.suppress(FileExistsError):
            os.mkdir(parts[0], dir_fd=root)
            os.fsync(root)
        with self._folder_of(parts) as folder:
            draft = f".{secrets.token_hex(8)}"
            file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=folder)
            try:
                with open(file, "wb") as target:  # noqa: PTH123 - it is a descriptor
                    shutil.copyfileobj(stream, target, _CHUNK_BYTES)
                    target.flush()
                    os.fsync(file)
                os.rename(draft, parts[-1], src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(draft, dir_fd=folder)
                raise
            # The row must not be more durable than the name that it holds.
            os.fsync(folder)

    def remove(self, parts: tuple[str, ...]) -> None:
        """As in ``Folder``. A link is removed itself, never what it points to."""
        with self._folder_of(parts) as folder:
            status = os.stat(parts[-1], dir_fd=folder, follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                raise AttachmentError("attachment_invalid", "it is a folder. Only files are removed")
            os.unlink(parts[-1], dir_fd=folder)

    def days(self) -> list[str]:
        """As in ``Folder``."""
        with os.scandir(self._path) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]

    def names(self, day: str) -> list[str]:
        """As in ``Folder``."""
        with self._folder_of((day, "")) as folder, os.scandir(folder) as entries:
            return [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]

    @contextlib.contextmanager
    def _folder_of(self, parts: tuple[str, ...]) -> Iterator[int]:
        try:
            folder = os.open(self._path, _FOLDER)
        except (FileNotFoundError, NotADirectoryError):
            # Not a missing file: more likely a volume that is not mounted yet.
            raise OSError(errno.EIO, "the store's folder is not there") from None
        try:
            for part in parts[:-1]:
                inner = _open_folder(part, folder)
                os.close(folder)
                folder = inner
            yield folder
        finally:
            os.close(folder)


def _open_folder(name: str, folder: int) -> int:
    try:
        return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
    except NotADirectoryError:
        if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise _link() from None
        raise FileNotFoundError from None


def _open_file(name: str, folder: int) -> int:
    try:
        return os.open(name, _FILE, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _link() from None
        if error.errno == errno.ENXIO:
            raise AttachmentError("attachment_invalid", "it is not a regular file. Refer to a file") from None
        raise


def _require_regular(file: int, max_bytes: int) -> None:
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode):
        raise AttachmentError("attachment_invalid", "it is not a regular file. Refer to a file")
    if status.st_size > max_bytes:
        raise TooLargeError(status.st_size)


def _link() -> AttachmentError:
    return AttachmentError(
        "attachment_forbidden", "a symbolic link is on its way, and those are not followed. Copy the file"
    )
