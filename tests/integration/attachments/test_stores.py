"""Files in real folders and stores: written before the commit, read when sent, and never from anywhere else."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.asyn import AsyncFileSystem
from fsspec.spec import AbstractFileSystem

from outbox_mail.errors import AttachmentError, ConfigurationError, ErrorClass, InvalidRequestError
from outbox_mail.mail.attachments.reference import Attachment
from outbox_mail.mail.attachments.rows import refs_from_json
from outbox_mail.mail.attachments.stores import Stores
from outbox_mail.mail.message import AttachmentRef


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty store of each kind."""
    if request.param == "file":
        (tmp_path / "store").mkdir()
        yield f"file://{tmp_path}/store"
        return
    name = uuid.uuid4().hex
    yield f"memory://{name}/mail"
    memory = fsspec.filesystem("memory")
    for path in memory.find(f"/{name}"):
        memory.rm_file(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one file in it, and a secret beside it."""
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "a.txt").write_bytes(b"content")
    (tmp_path / "secret.txt").write_bytes(b"secret")
    return inside


def ref(storage_ref: str, filename: str = "a.txt") -> AttachmentRef:
    return AttachmentRef(filename, "text/plain", storage_ref)


def failure(stores: Stores, *storage_refs: str, **options: Any) -> AttachmentError:
    with pytest.raises(AttachmentError) as caught:
        stores.load([ref(storage_ref) for storage_ref in storage_refs], **options)
    return caught.value


def test_bytes_are_stored_owned_and_come_back_as_they_were(store: str, tmp_path: Path) -> None:
    data = os.urandom(3_000_000)
    source = tmp_path / "Rapor 2026.CSV"
    source.write_bytes(data)
    made = [
        Attachment.from_bytes(b"", filename="empty.txt", store=store),
        Attachment.from_bytes(data, filename="Übersicht.pdf", store=store, content_id="x"),
        Attachment.from_file(source, store=f"{store}"),
    ]
    assert all(attachment.owned and attachment.storage_ref.startswith(f"{store}/") for attachment in made)
    assert len({attachment.storage_ref for attachment in made}) == 3
    assert made[1].storage_ref.endswith(".pdf")
    loaded = Stores([store]).load(refs_from_json([attachment.as_json() for attachment in made]), timeout_seconds=30)
    assert [item.data for item in loaded] == [b"", data, data]
    assert [item.filename for item in loaded] == ["empty.txt", "Übersicht.pdf", "Rapor 2026.CSV"]
    assert [item.content_type for item in loaded] == ["text/plain", "application/pdf", "text/csv"]
    assert loaded[1].content_id == "x"


def test_a_local_folder_is_left_without_half_written_files(tmp_path: Path) -> None:
    class Broken:
        def __init__(self) -> None:
            self.reads = 0

        def read(self, _size: int = -1) -> bytes:
            self.reads += 1
            if self.reads > 2:
                raise OSError("gone")
            return b"x" * 1000

    from outbox_mail.mail.attachments.local import LocalFolder

    with pytest.raises(OSError, match="gone"):
        LocalFolder(str(tmp_path)).write(("2026-01-01", "a"), Broken())  # type: ignore[arg-type]  # enough of a stream
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_nothing_is_stored_when_a_field_is_bad(store: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        Attachment.from_bytes(b"x", filename="a/b", store=store)
    assert caught.value.field == "filename"
    with pytest.raises(InvalidRequestError) as caught:
        Attachment.from_bytes(b"x", filename="a", content_type="nonsense", store=store)
    assert caught.value.field == "content_type"
    assert list(Stores([store]).list_owned(store, -10)) == []


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"data": "text"}, "data"),
        ({"data": None}, "data"),
        ({"data": b"x" * 11, "max_bytes": 10}, "data"),
        ({"store": "/tmp"}, "store"),
        ({"store": "file://relative"}, "store"),
        ({"store": "file:///a/../b"}, "store"),
        ({"store": None}, "store"),
        ({"content_id": "<x>"}, "content_id"),
    ],
)
def test_a_bad_request_to_store_names_its_field(options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        Attachment.from_bytes(**{"data": b"x", "filename": "a.txt", "store": "memory://x", **options})
    assert caught.value.field == field


def test_a_source_file_that_is_no_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * 11)
    for path in (tmp_path / "no", tmp_path, "a\0b", tmp_path / "large"):
        with pytest.raises(InvalidRequestError) as caught:
            Attachment.from_file(path, store="memory://x", max_bytes=10)
        assert caught.value.field == "path"


def test_a_store_that_cannot_be_written_is_transient_and_one_without_driver_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(AttachmentError) as caught:
        Attachment.from_bytes(b"x", filename="a", store=f"file://{tmp_path}/not-mounted")
    assert (caught.value.code, caught.value.error_class) == ("attachment_store_unavailable", ErrorClass.TRANSIENT)
    assert not (tmp_path / "not-mounted").exists()
    for unknown in ("nosuchstore://x", "zip://x", "simplecache://x"):
        with pytest.raises(AttachmentError, match=unknown.partition(":")[0]) as caught:
            Attachment.from_bytes(b"x", filename="a", store=unknown)
        assert caught.value.code == "attachment_store_unknown"


@pytest.mark.parametrize(
    "allowed",
    [
        "",
        "/var/files",
        "file://",
        "file:///",
        "file:///a/../b",
        "s3://key:secret@bucket",
        "simplecache::file:///a",
        "zip://a",
        "dir://a",
        "reference://a",
        "filecache://a",
        "blockcache://a",
        "tar://a",
        "github://a",
        "data://a",
        "local://a",
        "nosuchstore://a",
        "memory://a?b",
    ],
)
def test_a_store_that_is_no_plain_folder_stops_the_start(allowed: str) -> None:
    with pytest.raises(ConfigurationError, match="attachment_stores") as caught:
        Stores([allowed])
    assert "secret" not in str(caught.value)


def test_without_stores_nothing_may_be_read(folder: Path) -> None:
    assert Stores([]).load([]) == ()
    assert failure(Stores([]), f"file://{folder}/a.txt").code == "attachment_forbidden"


def test_only_what_is_below_an_allowed_store_is_read(folder: Path) -> None:
    stores = Stores([f"file://{folder}", "memory://files"])
    assert stores.allowed == (f"file://{folder}", "memory://files")
    assert stores.load([ref(f"file://{folder}/a.txt")])[0].data == b"content"
    outside = folder.parent
    for storage_ref in (
        f"file://{outside}/secret.txt",
        f"file://{folder}/../secret.txt",
        f"file://{folder}/%2e%2e/secret.txt",
        f"file://{folder}/./a.txt",
        f"file://{folder}//a.txt",
        f"file://{folder}",
        f"file://{folder}-other/a.txt",
        f"local://{folder}/a.txt",
        f"{folder}/a.txt",
        f"simplecache::file://{folder}/a.txt",
        f"zip://a.txt::file://{folder}/a.zip",
        "memory://other/a.txt",
        "memory://files/../other/a.txt",
        "memory:///files/a.txt",
        "http://169.254.169.254/latest/meta-data",
        f"file://{folder}/a.txt?x",
        f"file://{folder}/a.txt\0",
        "",
    ):
        error = failure(stores, storage_ref)
        assert (error.code, error.error_class) == ("attachment_forbidden", ErrorClass.PERMANENT), storage_ref
        with pytest.raises(AttachmentError):
            stores.remove(storage_ref)
    assert (outside / "secret.txt").read_bytes() == b"secret"
    assert (folder / "a.txt").exists()


def test_no_symbolic_link_leads_out_of_a_folder(folder: Path) -> None:
    (folder / "file-link").symlink_to(folder.parent / "secret.txt")
    (folder / "folder-link").symlink_to(folder.parent)
    (folder / "inner-link").symlink_to(folder / "a.txt")
    (folder / "loop").symlink_to(folder / "loop")
    stores = Stores([f"file://{folder}"])
    for name in ("file-link", "folder-link/secret.txt", "inner-link", "loop", "loop/a"):
        error = failure(stores, f"file://{folder}/{name}")
        assert (error.code, error.error_class) == ("attachment_forbidden", ErrorClass.PERMANENT), name
        assert "symbolic link" in str(error)
    with pytest.raises(AttachmentError):
        stores.remove(f"file://{folder}/folder-link/secret.txt")
    assert stores.remove(f"file://{folder}/file-link")
    assert (folder.parent / "secret.txt").read_bytes() == b"secret"


def test_a_folder_that_is_itself_a_link_is_the_operators_choice(folder: Path) -> None:
    (folder.parent / "link").symlink_to(folder)
    assert (
        Stores([f"file://{folder.parent}/link"]).load([ref(f"file://{folder.parent}/link/a.txt")])[0].data == b"content"
    )


def test_a_swap_of_folder_and_link_never_leaks_what_is_outside(folder: Path) -> None:
    (folder / "day").mkdir()
    (folder / "day" / "secret.txt").write_bytes(b"inside")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            (folder / "day").rename(folder / "real")
            (folder / "day").symlink_to(folder.parent)
            (folder / "day").unlink()
            (folder / "real").rename(folder / "day")

    thread = threading.Thread(target=swap)
    thread.start()
    stores = Stores([f"file://{folder}"])
    seen: set[str] = set()
    give_up_at = time.monotonic() + 20
    try:
        while not {"inside", "attachment_forbidden"} <= seen and time.monotonic() < give_up_at:
            try:
                came = stores.load([ref(f"file://{folder}/day/secret.txt")])[0].data.decode()
            except AttachmentError as error:
                came = error.code
            seen.add(came)
    finally:
        stop.set()
        thread.join()
    assert {"inside", "attachment_forbidden"} <= seen
    assert seen <= {"inside", "attachment_forbidden", "attachment_missing"}


def test_what_is_no_regular_file_is_refused_at_once(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "sub").mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "s"))
        stores = Stores([f"file://{folder}"])
        for name in ("pipe", "sub", "s"):
            error = failure(stores, f"file://{folder}/{name}")
            assert (error.code, error.error_class) == ("attachment_invalid", ErrorClass.PERMANENT), name
    with pytest.raises(AttachmentError, match="folder"):
        stores.remove(f"file://{folder}/sub")


def test_a_missing_file_is_permanent_and_named(store: str, folder: Path) -> None:
    error = failure(Stores([store]), f"{store}/2026/invoice-7.pdf")
    assert (error.code, error.error_class) == ("attachment_missing", ErrorClass.PERMANENT)
    assert "invoice-7.pdf" in str(error)
    assert failure(Stores([f"file://{folder}"]), f"file://{folder}/a.txt/b").code == "attachment_missing"


def test_a_store_whose_folder_is_gone_is_transient(tmp_path: Path) -> None:
    stores = Stores([f"file://{tmp_path}/volume"])
    error = failure(stores, f"file://{tmp_path}/volume/a.txt")
    assert (error.code, error.error_class) == ("attachment_store_unavailable", ErrorClass.TRANSIENT)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_transient(folder: Path) -> None:
    (folder / "a.txt").chmod(0)
    assert failure(Stores([f"file://{folder}"]), f"file://{folder}/a.txt").error_class is ErrorClass.TRANSIENT


def test_a_file_or_a_mail_that_is_too_large_is_permanent_and_says_which_limit(store: str) -> None:
    names = [Attachment.from_bytes(b"x" * size, filename="a", store=store).storage_ref for size in (60, 60, 101)]
    stores = Stores([store], max_file_bytes=100, max_mail_bytes=120)
    assert len(stores.load([ref(names[0]), ref(names[1])])) == 2
    one = failure(stores, names[2])
    assert (one.code, one.error_class) == ("attachment_too_large", ErrorClass.PERMANENT)
    assert "101 bytes" in str(one)
    assert "max_attachment_bytes" in str(one)
    small = Stores([store], max_file_bytes=100, max_mail_bytes=119)
    both = failure(small, names[0], names[1])
    assert both.code == "attachment_too_large"
    assert "max_mail_bytes" in str(both)


def test_a_local_file_that_grows_while_it_is_read_is_not_read_beyond_the_limit(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "grows").write_bytes(b"x" * 2000)
    real = os.fstat

    def small(descriptor: int) -> os.stat_result:
        status = list(real(descriptor))
        status[6] = 10
        return os.stat_result(status)

    monkeypatch.setattr(os, "fstat", small)
    error = failure(Stores([f"file://{folder}"], max_file_bytes=1000), f"file://{folder}/grows")
    assert error.code == "attachment_too_large"


def test_an_owned_file_is_removed_once_and_removing_it_again_is_fine(store: str) -> None:
    made = Attachment.from_bytes(b"x", filename="a.txt", store=store)
    stores = Stores([store])
    assert stores.remove(made.storage_ref)
    assert not stores.remove(made.storage_ref)
    assert failure(stores, made.storage_ref).code == "attachment_missing"


def test_only_old_files_that_were_stored_by_attachment_are_listed_for_the_sweep(store: str) -> None:
    stores = Stores([store])
    assert list(stores.list_owned(store, 0)) == []
    made = [Attachment.from_bytes(b"x", filename=name, store=store).storage_ref for name in ("a.txt", "b", "c.tar.gz")]
    with fsspec.open(f"{store}/somebody-elses.txt", "wb") as file:
        file.write(b"x")
    with fsspec.open(f"{store}/{made[0].split('/')[-2]}/notes.txt", "wb") as file:
        file.write(b"x")
    assert list(stores.list_owned(store, -1)) == sorted(made)
    assert list(stores.list_owned(f"{store}/", -1)) == sorted(made)
    assert list(stores.list_owned(store, 3600)) == []
    with pytest.raises(AttachmentError) as caught:
        list(stores.list_owned(f"{store}/deeper", 0))
    assert caught.value.code == "attachment_forbidden"


def test_many_threads_read_one_file_of_a_store_at_once(store: str) -> None:
    data = os.urandom(200_000)
    made = Attachment.from_bytes(data, filename="a", store=store)
    stores = Stores([store])
    right: list[bool] = []

    def read() -> None:
        right.extend(stores.load([ref(made.storage_ref)])[0].data == data for _ in range(20))

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert right == [True] * 160


class SlowStore(AsyncFileSystem):  # type: ignore[misc]  # fsspec has no types
    """An object store that answers late, as its name says."""

    protocol = "slowstore"
    cachable = False

    async def _info(self, path: str, **_kwargs: Any) -> dict[str, Any]:
        return {"name": path, "size": 4, "type": "file"}

    async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **_kwargs: Any) -> bytes:
        await asyncio.sleep(30 if path.endswith("late") else 0)
        return b"data"[start:end]


class OddStore(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A store that fails in every way that its file's name asks for."""

    protocol = "oddstore"
    cachable = False

    def info(self, path: str, **_kwargs: Any) -> dict[str, Any]:
        name = path.rpartition("/")[2]
        if name == "denied":
            raise PermissionError("AccessKey=hunter2")
        if name == "broken":
            raise RuntimeError("https://user:hunter2@host is down")
        return {"name": path, "size": None if name == "unsized" else 4, "type": "file"}

    def cat_file(self, path: str, **_kwargs: Any) -> bytes:
        return b"da" if path.endswith("short") else b"data"


@pytest.fixture
def odd_stores() -> Stores:
    """Stores behind drivers that are made for the test."""
    fsspec.register_implementation("slowstore", SlowStore, clobber=True)
    fsspec.register_implementation("oddstore", OddStore, clobber=True)
    return Stores(["slowstore://bucket", "oddstore://bucket"])


def test_an_asynchronous_store_is_cut_off_in_time(odd_stores: Stores) -> None:
    assert odd_stores.load([ref("slowstore://bucket/a")], timeout_seconds=5)[0].data == b"data"
    started = time.monotonic()
    error = failure(odd_stores, "slowstore://bucket/late", timeout_seconds=0.3)
    assert time.monotonic() - started < 5
    assert (error.code, error.error_class) == ("attachment_store_unavailable", ErrorClass.TRANSIENT)


def test_no_file_is_begun_when_no_time_is_left(odd_stores: Stores) -> None:
    error = failure(odd_stores, "oddstore://bucket/a", timeout_seconds=0)
    assert (error.code, error.error_class) == ("attachment_store_unavailable", ErrorClass.TRANSIENT)


@pytest.mark.parametrize("name", ["denied", "broken", "short"])
def test_whatever_a_store_fails_with_is_transient_and_its_secrets_stay_out(odd_stores: Stores, name: str) -> None:
    error = failure(odd_stores, f"oddstore://bucket/{name}")
    assert (error.code, error.error_class) == ("attachment_store_unavailable", ErrorClass.TRANSIENT)
    assert "hunter2" not in str(error)
    assert error.__suppress_context__


def test_a_store_that_tells_no_size_is_refused(odd_stores: Stores) -> None:
    assert failure(odd_stores, "oddstore://bucket/unsized").code == "attachment_invalid"
