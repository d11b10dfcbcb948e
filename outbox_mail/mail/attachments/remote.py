"""A folder in whatever fsspec reaches: object stores, FTP, SFTP, WebDAV, this process's memory."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any, BinaryIO, Final

import fsspec
from fsspec.archive import AbstractArchiveFileSystem
from fsspec.asyn import AsyncFileSystem, sync
from fsspec.implementations.chained import ChainedFileSystem
from fsspec.implementations.local import LocalFileSystem

from outbox_mail.errors import AttachmentError
from outbox_mail.mail.attachments.folders import TooLargeError
from outbox_mail.mail.attachments.storage_ref import StorageRef

_CHUNK_BYTES: Final = 1 << 20
# They read one store through another, so a name below them could mean any place.
_WRAPPING: Final = (ChainedFileSystem, AbstractArchiveFileSystem, LocalFileSystem)
_WRAPPING_NAMES: Final = frozenset({"reference", "generic", "data", "git", "github", "gist", "jupyter", "jlab"})


class RemoteFolder:
    """The driver is told where to connect by fsspec's own configuration (``FSSPEC_S3='{"endpoint_url": …}'``).

    Names never hold credentials, patterns, queries or escapes: ``StorageRef`` refuses them.
    """

    def __init__(self, ref: StorageRef) -> None:
        try:
            driver = fsspec.get_filesystem_class(ref.scheme)
        except ValueError:
            raise ImportError(f"fsspec knows no store called {ref.scheme}://") from None
        if ref.scheme in _WRAPPING_NAMES or issubclass(driver, _WRAPPING):
            raise ImportError(f"{ref.scheme}:// is no store of its own")
        self._ref = ref

    def read(self, parts: tuple[str, ...], max_bytes: int, timeout_seconds: float | None) -> bytes:
        """As in ``Folder``. The time bounds each call of drivers that are asynchronous (S3, GCS, Azure, HTTP).

        Others (FTP, SFTP, SMB) are bounded only by what the driver itself is configured to.
        """
        fs, path = self._open(parts)
        self._forget_listings(fs)
        info: dict[str, Any] = _call(fs, "info", timeout_seconds, path)
        if info.get("type") == "directory":
            raise AttachmentError("attachment_invalid", "it is a folder. Refer to a file")
        size_bytes = info.get("size")
        if not isinstance(size_bytes, int):
            raise AttachmentError("attachment_invalid", "the store does not tell its size. Copy it to another store")
        if size_bytes > max_bytes:
            raise TooLargeError(size_bytes)
        if size_bytes == 0:
            # Object stores refuse a range of an empty object.
            return b""
        data: bytes = _call(fs, "cat_file", timeout_seconds, path, start=0, end=size_bytes)
        if len(data) != size_bytes:
            raise OSError("it changed while it was read")
        return data

    def write(self, parts: tuple[str, ...], stream: BinaryIO) -> None:
        """As in ``Folder``. What an interrupted write leaves in a store has a name that no row refers to."""
        fs, path = self._open(parts)
        try:
            target = fs.open(path, "wb")
        except FileNotFoundError:
            # Object stores know no folders, and asking them to make one may make a bucket: only where it is needed.
            fs.makedirs(path.rpartition("/")[0], exist_ok=True)
            target = fs.open(path, "wb")
        with target:
            shutil.copyfileobj(stream, target, _CHUNK_BYTES)

    def remove(self, parts: tuple[str, ...]) -> None:
        """As in ``Folder``."""
        fs, path = self._open(parts)
        self._forget_listings(fs)
        if fs.info(path).get("type") == "directory":
            raise AttachmentError("attachment_invalid", "it is a folder. Only files are removed")
        fs.rm_file(path)

    def days(self) -> list[str]:
        """As in ``Folder``."""
        return self._list(())

    def names(self, day: str) -> list[str]:
        """As in ``Folder``."""
        return self._list((day,))

    def _list(self, parts: tuple[str, ...]) -> list[str]:
        fs, path = self._open(parts)
        self._forget_listings(fs)
        try:
            return [name.rstrip("/").rpartition("/")[2] for name in fs.ls(path, detail=False)]
        except FileNotFoundError:
            # An object store has no folder before its first file.
            return []

    def _open(self, parts: tuple[str, ...]) -> tuple[Any, str]:
        # fsspec keeps instances by process and thread, so nothing is shared across a fork.
        fs, root = fsspec.url_to_fs(str(self._ref))
        return fs, "/".join((root.rstrip("/"), *parts))

    @staticmethod
    def _forget_listings(fs: Any) -> None:
        # From a remembered listing of its folder a driver says that a newer file is missing.
        fs.dircache.use_listings_cache = False
        fs.dircache.clear()


def _call(fs: Any, name: str, timeout_seconds: float | None, *args: Any, **kwargs: Any) -> Any:
    if isinstance(fs, AsyncFileSystem) and not fs.asynchronous:
        return sync(fs.loop, getattr(fs, f"_{name}"), *args, timeout=timeout_seconds, **kwargs)
    method: Callable[..., Any] = getattr(fs, name)
    return method(*args, **kwargs)
