"""Owned files go with the last row that names them, after its commit; all others stay."""

from __future__ import annotations

import logging
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from outbox_mail.errors import AttachmentError, ErrorClass
from outbox_mail.mail import owned_files
from outbox_mail.mail.attachments.stores import Stores
from outbox_mail.mail.outbox import MAIL
from outbox_mail.mail.owned_files import RECORD_WITH_ROWS, remove_files, sweep_orphans
from outbox_mail.outbox.retention import retain
from outbox_mail.outbox.signals import FilesRemoved
from outbox_mail.outbox.status import Status

Keeper = Any


def remove(keeper: Keeper, **changes: Any) -> int:
    return remove_files(keeper.connection, keeper.stores, keeper.signals, **{"grace_seconds": 0} | changes)


def sweep(keeper: Keeper, **changes: Any) -> int:
    return sweep_orphans(keeper.connection, keeper.stores, **{"older_than_days": 7} | changes)


def told(keeper: Keeper) -> list[FilesRemoved]:
    return [signal for signal in keeper.said if isinstance(signal, FilesRemoved)]


def owned_since(keeper: Keeper, days: float) -> dict[str, Any]:
    """An owned file that was written so long ago: its time is in its name."""
    at = datetime.now(UTC) - timedelta(days=days)
    name = f"{int(at.timestamp() * 1000):012x}{secrets.token_hex(10)}"
    path = Path(keeper.folder) / at.date().isoformat() / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"x")
    return {"filename": "a", "storage_ref": f"{keeper.store}/{at.date().isoformat()}/{name}", "owned": True}


@pytest.mark.parametrize("archive", [False, True])
@pytest.mark.parametrize("status", [Status.SENT, Status.FAILED])
def test_an_owned_file_goes_with_its_row(keeper: Keeper, status: Status, archive: bool) -> None:
    gone, kept = keeper.owned(), keeper.owned()
    keeper.insert(status, 100, gone)
    keeper.insert(status, 1, kept)

    keeper.retain(archive=archive)

    assert not keeper.path(gone).exists()
    assert keeper.path(kept).exists()
    assert keeper.recorded() == []
    assert told(keeper) == [FilesRemoved(1, 0)]


def test_a_file_that_is_not_owned_stays(keeper: Keeper) -> None:
    lent, refused = keeper.owned(), keeper.owned()
    del lent["owned"]
    refused["owned"] = False
    keeper.insert(Status.SENT, 100, lent, refused)

    assert keeper.retain() == 1

    assert keeper.path(lent).exists()
    assert keeper.path(refused).exists()
    assert keeper.recorded() == []


@pytest.mark.parametrize("other", list(Status))
@pytest.mark.parametrize("owned", [True, False])
def test_a_shared_file_goes_with_its_last_row_only(keeper: Keeper, other: Status, owned: bool) -> None:
    shared = keeper.owned()
    keeper.insert(Status.SENT, 100, shared)
    last = keeper.insert(other, 1, {"filename": "b", "storage_ref": "file:///elsewhere"}, shared | {"owned": owned})

    keeper.retain()
    assert keeper.path(shared).exists()

    keeper.connection.execute("DELETE FROM email_messages WHERE id = %s", [last])
    keeper.retain()
    assert not keeper.path(shared).exists()
    assert keeper.recorded() == []


def test_a_file_that_one_row_names_twice_goes_once(keeper: Keeper) -> None:
    twice = keeper.owned()
    keeper.insert(Status.SENT, 100, twice, twice | {"filename": "b.txt"})
    keeper.insert(Status.SENT, 99, twice)

    assert keeper.retain() == 2

    assert told(keeper) == [FilesRemoved(1, 0)]


def test_a_crash_between_commit_and_removal_forgets_no_file(keeper: Keeper) -> None:
    files = [keeper.owned() for _ in range(3)]
    for file in files:
        keeper.insert(Status.SENT, 100, file)

    retain(
        keeper.connection,
        MAIL,
        keeper.signals,
        status=Status.SENT,
        older_than_days=60,
        batch_size=10,
        archive=False,
        also=RECORD_WITH_ROWS,
    )
    # Here the process is gone: nothing but the table knows of the files.
    assert keeper.ids() == set()
    assert all(keeper.path(file).exists() for file in files)
    assert len(keeper.recorded()) == 3
    # One was removed before the next crash, its record was not.
    keeper.path(files[0]).unlink()

    keeper.retain()

    assert not any(keeper.path(file).exists() for file in files)
    assert keeper.recorded() == []
    assert told(keeper) == [FilesRemoved(2, 0)]


def test_no_file_goes_when_the_removal_of_its_row_is_not_committed(keeper: Keeper) -> None:
    file = keeper.owned()
    id_ = keeper.insert(Status.SENT, 100, file)
    keeper.connection.execute("ALTER TABLE email_files_to_remove ADD CONSTRAINT no_room CHECK (false) NOT VALID")

    with pytest.raises(psycopg.errors.CheckViolation):
        keeper.retain()

    assert keeper.ids() == {id_}
    assert keeper.path(file).exists()


def test_a_row_that_comes_within_the_grace_keeps_its_file(keeper: Keeper) -> None:
    file = keeper.owned()
    keeper.insert(Status.SENT, 100, file)

    keeper.retain(grace_seconds=3600)
    assert keeper.path(file).exists()
    keeper.insert(Status.PENDING, 0, file)
    keeper.connection.execute("UPDATE email_files_to_remove SET recorded_at = now() - interval '61 minutes'")
    keeper.retain(grace_seconds=3600)
    assert keeper.path(file).exists()

    keeper.connection.execute("DELETE FROM email_messages")
    keeper.retain(grace_seconds=3600)
    assert keeper.path(file).exists()
    keeper.connection.execute("UPDATE email_files_to_remove SET recorded_at = now() - interval '61 minutes'")
    keeper.retain(grace_seconds=3600)
    assert not keeper.path(file).exists()


def test_a_file_has_its_grace_again_when_another_row_of_it_goes(keeper: Keeper) -> None:
    file = keeper.owned()
    keeper.insert(Status.SENT, 100, file)
    keeper.retain(grace_seconds=3600)
    keeper.connection.execute("UPDATE email_files_to_remove SET recorded_at = now() - interval '61 minutes'")
    keeper.insert(Status.SENT, 100, file)

    keeper.retain(grace_seconds=3600)

    assert keeper.path(file).exists()


def test_a_row_that_is_not_committed_yet_is_the_producers_to_finish_within_the_grace(keeper: Keeper) -> None:
    file = keeper.owned()
    keeper.insert(Status.SENT, 100, file)
    keeper.retain(grace_seconds=3600)
    with psycopg.connect(keeper.database_url) as producer:
        producer.execute(
            """INSERT INTO email_messages ("to", template, attachments)
                VALUES (ARRAY['a@example.com'], 'T', %s)""",
            [psycopg.types.json.Jsonb([file])],
        )
        remove(keeper, grace_seconds=3600)
    keeper.connection.execute("UPDATE email_files_to_remove SET recorded_at = now() - interval '2 hours'")

    remove(keeper, grace_seconds=3600)

    assert keeper.path(file).exists()
    assert told(keeper) == []


def test_a_store_that_is_down_leaves_the_record_for_the_next_run(
    keeper: Keeper, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = [keeper.owned() for _ in range(8)]
    for file in files:
        keeper.insert(Status.SENT, 100, file)
    away = tmp_path / "unmounted"
    keeper.folder.rename(away)

    with caplog.at_level(logging.WARNING):
        assert keeper.retain() == 8

    assert told(keeper) == [FilesRemoved(0, 8)]
    logged = {vars(record)["error_code"]: vars(record)["count"] for record in caplog.records}
    assert logged == {"attachment_store_unavailable": 5, "store_left_for_later": 3}
    assert len(keeper.recorded()) == 8

    away.rename(keeper.folder)
    keeper.retain()

    assert told(keeper)[-1] == FilesRemoved(8, 0)
    assert keeper.recorded() == []


def test_one_store_that_is_down_does_not_keep_another_from_being_cleaned(keeper: Keeper, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Stores([f"file://{tmp_path / 'gone'}", keeper.store])
    keeper.stores = other
    for number in range(20):
        file = {"filename": "a", "storage_ref": f"file://{tmp_path / 'gone'}/{number}", "owned": True}
        keeper.insert(Status.SENT, 100, file)
    good = keeper.owned()
    keeper.insert(Status.SENT, 100, good)

    keeper.retain()

    assert not keeper.path(good).exists()
    assert told(keeper) == [FilesRemoved(1, 20)]


def test_files_that_a_store_refuses_for_ever_do_not_keep_others_from_going(keeper: Keeper) -> None:
    (keeper.folder / "folder").mkdir()
    refused = [f"{keeper.store}/folder", "file:///etc/passwd", "s3://bucket/key"]
    for ref in refused * 3:
        keeper.insert(Status.SENT, 100, {"filename": "a", "storage_ref": ref, "owned": True})
    good = [keeper.owned() for _ in range(3)]
    keeper.insert(Status.SENT, 100, *good)

    keeper.retain()

    assert not any(keeper.path(file).exists() for file in good)
    assert told(keeper) == [FilesRemoved(3, 3)]
    assert keeper.recorded() == sorted(refused)
    assert Path("/etc/passwd").exists()


def test_a_link_that_a_row_calls_owned_takes_nothing_with_it(keeper: Keeper, tmp_path: Path) -> None:
    treasure = tmp_path / "treasure"
    treasure.mkdir()
    (treasure / "file").write_bytes(b"x")
    (keeper.folder / "link").symlink_to(treasure / "file")
    (keeper.folder / "day").symlink_to(treasure)
    for name in ("link", "day/file"):
        keeper.insert(Status.SENT, 100, {"filename": "a", "storage_ref": f"{keeper.store}/{name}", "owned": True})

    keeper.retain()

    assert (treasure / "file").exists()
    assert keeper.recorded() == [f"{keeper.store}/day/file"]


HOSTILE: list[object] = [
    "not an object",
    None,
    7,
    [],
    {},
    {"owned": True},
    {"owned": True, "storage_ref": None},
    {"owned": True, "storage_ref": {"a": 1}},
    {"owned": "true", "storage_ref": "file:///x/y"},
    {"owned": 1, "storage_ref": "file:///x/y"},
    {"owned": True, "storage_ref": "x" * 1025},
    {"owned": True, "storage_ref": "".join(chr(0x10000 + n * 7) for n in range(1000))},
]


def test_attachments_that_nobody_here_writes_do_not_stop_retention(keeper: Keeper) -> None:
    file = keeper.owned()
    for item in HOSTILE:
        keeper.insert(Status.SENT, 100, item, file)

    assert keeper.retain() == len(HOSTILE)

    assert not keeper.path(file).exists()
    assert keeper.recorded() == []


@pytest.mark.parametrize(
    "ref", ["", "x", "file:///a/../b", "file:///a/%2e%2e/b", "a\nb", "'); DROP TABLE email_messages; --", "🙂" * 600]
)
def test_a_name_that_no_store_can_have_is_forgotten(keeper: Keeper, ref: str) -> None:
    keeper.insert(Status.SENT, 100, {"filename": "a", "storage_ref": ref, "owned": True})

    assert keeper.retain() == 1

    assert keeper.recorded() == []
    assert told(keeper) == [FilesRemoved(0, 1)]


def test_many_files_are_removed_in_one_run(keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owned_files, "_TAKE_SQL", owned_files._TAKE_SQL.replace("LIMIT 500", "LIMIT 7"))
    for _ in range(30):
        keeper.insert(Status.SENT, 100, keeper.owned())
    shared = keeper.owned()
    keeper.insert(Status.SENT, 100, shared)
    keeper.insert(Status.PENDING, 100, shared)

    keeper.retain()

    assert told(keeper) == [FilesRemoved(30, 0)]
    assert keeper.recorded() == [shared["storage_ref"]]


def test_the_removal_of_files_ends_when_it_is_told_to(keeper: Keeper) -> None:
    for _ in range(3):
        keeper.insert(Status.SENT, 100, keeper.owned())
    keeper.retain(grace_seconds=3600)
    leaving = threading.Event()
    leaving.set()

    assert remove(keeper, wait=leaving.wait) == 0
    assert remove(keeper, max_seconds=0) == 0
    assert len(keeper.recorded()) == 3
    assert remove(keeper) == 3


def test_killing_a_run_at_any_moment_loses_no_file_and_leaves_none(keeper: Keeper) -> None:
    for _ in range(300):
        keeper.insert(Status.SENT, 100, keeper.owned())
    kept = keeper.owned()
    keeper.insert(Status.SENT, 1, kept)
    program = f"""
import psycopg
from outbox_mail.mail.attachments.stores import Stores
from outbox_mail.mail.retention import retain_mail
from outbox_mail.outbox.signals import Signals
with psycopg.connect({keeper.database_url!r}, autocommit=True) as connection:
    retain_mail(connection, Stores([{keeper.store!r}]), Signals(), sent_days=60, failed_days=60, batch_size=100,
        archive=False, grace_seconds=0, pause_seconds=0)
"""

    def files() -> list[Path]:
        return [path for path in keeper.folder.rglob("*") if path.is_file()]

    moments: list[Callable[[], bool]] = [
        lambda: len(keeper.ids()) <= 201,
        lambda: len(files()) <= 280,
        lambda: len(files()) <= 100,
    ]
    for progressed in moments:
        process = subprocess.Popen([sys.executable, "-c", program])
        deadline = time.monotonic() + 30
        while not progressed() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.001)
        process.kill()
        process.wait()
    # The server may still be at the last statement of a client that is gone.
    while len(keeper.ids()) > 1 or keeper.recorded():
        assert time.monotonic() < deadline + 30
        keeper.retain()

    assert files() == [keeper.path(kept)]
    assert keeper.recorded() == []


def test_several_runs_at_once_remove_each_file_once(keeper: Keeper) -> None:
    for _ in range(60):
        keeper.insert(Status.SENT, 100, keeper.owned())
    keeper.retain(grace_seconds=3600)

    def run(_: int) -> int:
        with psycopg.connect(keeper.database_url, autocommit=True) as mine:
            return remove_files(mine, keeper.stores, keeper.signals, grace_seconds=0)

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(run, range(4))) == 60

    assert keeper.recorded() == []


def test_what_was_removed_is_told_though_the_database_breaks_off(keeper: Keeper) -> None:
    for _ in range(3):
        keeper.insert(Status.SENT, 100, keeper.owned())
    keeper.retain(grace_seconds=3600)
    asked = 0

    def cut(_: float) -> bool:
        nonlocal asked
        asked += 1
        if asked == 2:
            with psycopg.connect(keeper.database_url, autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s)", [keeper.connection.info.backend_pid])
        return False

    with pytest.raises(psycopg.OperationalError):
        remove(keeper, wait=cut)

    assert told(keeper) == [FilesRemoved(1, 0)]


def test_orphans_are_swept_when_they_are_old_enough(keeper: Keeper) -> None:
    orphan, young, named = owned_since(keeper, 8), owned_since(keeper, 6), owned_since(keeper, 8)
    keeper.insert(Status.PENDING, 8, named)
    foreign = keeper.folder / "2020-01-01" / "report.pdf"
    foreign.parent.mkdir()
    foreign.write_bytes(b"somebody else's")

    assert sweep(keeper) == 1
    assert keeper.recorded() == [orphan["storage_ref"]]
    assert sweep(keeper) == 0
    assert remove(keeper) == 1

    assert not keeper.path(orphan).exists()
    assert keeper.path(young).exists()
    assert keeper.path(named).exists()
    assert foreign.exists()


def test_the_file_of_a_producer_that_was_rolled_back_is_swept(keeper: Keeper) -> None:
    with psycopg.connect(keeper.database_url) as producer:
        file = owned_since(keeper, 7.01)
        producer.execute(
            """INSERT INTO email_messages ("to", template, attachments)
                VALUES (ARRAY['a@example.com'], 'T', %s)""",
            [psycopg.types.json.Jsonb([file])],
        )
        producer.rollback()

    sweep(keeper)
    remove(keeper)

    assert not keeper.path(file).exists()


def test_an_orphan_that_is_named_after_the_sweep_stays(keeper: Keeper) -> None:
    file = owned_since(keeper, 8)
    sweep(keeper)
    keeper.insert(Status.PENDING, 0, file)

    assert remove(keeper) == 0

    assert keeper.path(file).exists()


def test_sweeping_does_not_shorten_the_grace_of_a_file_that_is_recorded(keeper: Keeper) -> None:
    file = owned_since(keeper, 100)
    keeper.insert(Status.SENT, 100, file)
    keeper.retain(grace_seconds=3600)

    assert sweep(keeper) == 0
    assert remove(keeper, grace_seconds=3600) == 0


def test_the_sweep_is_off_at_zero_days(keeper: Keeper) -> None:
    owned_since(keeper, 1000)

    assert sweep(keeper, older_than_days=0) == 0
    assert keeper.recorded() == []


def test_a_sweep_that_finds_far_too_many_orphans_stops_and_says_so(
    keeper: Keeper, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(8):
        owned_since(keeper, 10)

    with caplog.at_level(logging.WARNING):
        assert sweep(keeper, max_files=5) == 5

    assert [record.message for record in caplog.records] == ["orphans_swept_in_part"]
    assert len(keeper.recorded()) == 5
    assert sweep(keeper, max_files=5) == 3


def test_a_store_that_is_down_does_not_keep_the_sweep_from_the_next(
    keeper: Keeper, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    owned_since(keeper, 10)
    keeper.stores = Stores([f"file://{tmp_path / 'gone'}", keeper.store])

    with caplog.at_level(logging.WARNING):
        assert sweep(keeper) == 1

    assert [record.message for record in caplog.records] == ["orphans_not_swept"]


def test_a_store_whose_driver_fails_in_the_middle_loses_no_record(keeper: Keeper) -> None:
    class Flaky(Stores):
        calls = 0

        def remove(self, storage_ref: str) -> bool:
            self.calls += 1
            if self.calls % 2:
                raise AttachmentError("attachment_store_unavailable", "again", error_class=ErrorClass.TRANSIENT)
            return super().remove(storage_ref)

    for _ in range(10):
        keeper.insert(Status.SENT, 100, keeper.owned())
    keeper.stores = Flaky([keeper.store])

    keeper.retain()

    assert told(keeper) == [FilesRemoved(5, 5)]
    assert len(keeper.recorded()) == 5


def test_an_object_store_is_cleaned_and_swept_alike(keeper: Keeper) -> None:
    import fsspec

    from outbox_mail import Attachment

    keeper.stores = Stores(["memory://upkeep/files"])
    file = Attachment.from_bytes(b"x", filename="a.txt", store="memory://upkeep/files").as_json()
    keeper.insert(Status.SENT, 100, file)
    memory = fsspec.filesystem("memory")
    old = f"{int(datetime(2024, 1, 2, tzinfo=UTC).timestamp() * 1000):012x}{secrets.token_hex(10)}"
    memory.pipe(f"/upkeep/files/2024-01-02/{old}.txt", b"x")

    sweep(keeper)
    keeper.retain()

    assert told(keeper) == [FilesRemoved(2, 0)]
    assert memory.find("/upkeep/files") == []
