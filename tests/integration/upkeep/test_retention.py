"""Finished rows go by their own ages, in small batches; nothing else ever does."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from outbox_mail.errors import UsageError
from outbox_mail.mail.outbox import MAIL
from outbox_mail.outbox import transitions
from outbox_mail.outbox.retention import retain
from outbox_mail.outbox.signals import Retained, Signals
from outbox_mail.outbox.status import RETAINED, Status

Keeper = Any


def test_sent_and_failed_rows_go_by_their_own_ages(keeper: Keeper) -> None:
    old = [keeper.insert(Status.SENT, 61), keeper.insert(Status.FAILED, 91)]
    young = {keeper.insert(Status.SENT, 59), keeper.insert(Status.FAILED, 61), keeper.insert(Status.FAILED, 89)}

    assert keeper.retain() == len(old)

    assert keeper.ids() == young
    assert keeper.said == [Retained("SENT", 1, archived=False), Retained("FAILED", 1, archived=False)]


@pytest.mark.parametrize("archive", [False, True])
def test_what_is_unfinished_stays_however_old_it_is(keeper: Keeper, archive: bool) -> None:
    unfinished = {keeper.insert(Status.PENDING, 3000), keeper.insert(Status.SENDING, 3000)}
    keeper.insert(Status.SENT, 3000)

    assert keeper.retain(sent_days=0.001, failed_days=0.001, archive=archive) == 1

    assert keeper.ids() == unfinished


@pytest.mark.parametrize("status", sorted(set(Status) - RETAINED))
def test_a_status_that_is_never_removed_is_refused(keeper: Keeper, status: Status) -> None:
    keeper.insert(status, 3000)

    with pytest.raises(UsageError, match=f"status: {status} rows are never removed"):
        retain(keeper.connection, MAIL, keeper.signals, status=status, older_than_days=1, batch_size=10, archive=False)

    assert len(keeper.ids()) == 1


def test_a_row_counts_from_when_it_was_finished_not_from_when_it_was_written(keeper: Keeper) -> None:
    id_ = keeper.insert(Status.PENDING, 300)
    transitions.accept(keeper.connection, MAIL, id_, provider="memory", provider_message_id=None)

    assert keeper.retain() == 0


def test_a_backlog_goes_in_batches_the_oldest_first_with_pauses(keeper: Keeper) -> None:
    keeper.insert_many(Status.SENT, 250, days=70)
    left: list[int] = []

    def wait(seconds: float) -> bool:
        if seconds:
            left.append(len(keeper.ids()))
        return False

    assert keeper.retain(batch_size=100, pause_seconds=0.01, wait=wait) == 250
    assert left == [150, 50]


def test_a_run_ends_when_it_is_told_to_and_the_next_one_catches_up(keeper: Keeper) -> None:
    keeper.insert_many(Status.SENT, 250, days=70)
    leaving = threading.Event()
    leaving.set()

    assert keeper.retain(wait=leaving.wait) == 100
    assert keeper.retain(max_seconds=0) == 100
    assert keeper.retain() == 50
    assert keeper.retain() == 0


def test_a_batch_that_takes_too_long_is_halved(keeper: Keeper) -> None:
    keeper.insert_many(Status.SENT, 40, days=70)
    keeper.connection.execute(
        """CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN PERFORM pg_sleep(0.05); RETURN old; END $$"""
    )
    keeper.connection.execute(
        "CREATE TRIGGER dawdle BEFORE DELETE ON email_messages FOR EACH ROW EXECUTE FUNCTION dawdle()"
    )
    keeper.connection.execute("SET statement_timeout = '1s'")

    assert keeper.retain(batch_size=40) == 40


def test_the_failed_attempts_of_a_row_go_with_it(keeper: Keeper) -> None:
    old, young = keeper.insert(Status.FAILED, 91), keeper.insert(Status.FAILED, 1)
    for id_ in (old, young):
        keeper.connection.execute(
            """INSERT INTO email_attempts (message_id, claim, error_class, error_code, error_message)
                VALUES (%s, 1, 'permanent', 'smtp_550', 'no')""",
            [id_],
        )

    keeper.retain()

    assert keeper.connection.execute("SELECT message_id FROM email_attempts").fetchall() == [(young,)]


def test_archiving_moves_the_whole_row(keeper: Keeper) -> None:
    id_ = keeper.insert(
        Status.SENT,
        61,
        cc=["c@example.com"],
        parameters=Jsonb({"order": 7}),
        provider_message_id="p-1",
        tags=["x"],
        entity_type="order",
        entity_id="7",
    )
    columns = ", ".join(f'"{column}"' for column in MAIL.columns)
    before = keeper.connection.execute(f"SELECT {columns} FROM email_messages".encode()).fetchall()

    assert keeper.retain(archive=True) == 1

    assert keeper.ids() == set()
    after = keeper.connection.execute(f"SELECT {columns} FROM email_messages_archive".encode()).fetchall()
    assert after == before
    assert after[0][0] == id_
    assert keeper.connection.execute(
        "SELECT archived_at > now() - interval '1 minute' FROM email_messages_archive"
    ).fetchone() == (True,)
    assert keeper.said == [Retained("SENT", 1, archived=True)]


def test_the_archive_has_every_column_of_the_outbox(keeper: Keeper) -> None:
    rows = keeper.connection.execute(
        "SELECT column_name FROM information_schema.columns WHERE table_name = 'email_messages'"
    ).fetchall()

    assert set(MAIL.columns) == {row[0] for row in rows}


def test_a_row_that_came_back_from_the_archive_is_archived_again(keeper: Keeper) -> None:
    id_ = keeper.insert(Status.SENT, 61)
    keeper.retain(archive=True)
    keeper.insert(Status.FAILED, 91, id=id_)

    assert keeper.retain(archive=True) == 1

    archived = keeper.connection.execute("SELECT status, sent_at FROM email_messages_archive").fetchall()
    assert archived == [("FAILED", None)]


def test_an_archive_that_refuses_a_row_keeps_it_where_it_was(keeper: Keeper) -> None:
    keeper.insert_many(Status.SENT, 3, days=70)
    keeper.connection.execute("ALTER TABLE email_messages_archive ADD CONSTRAINT no_room CHECK (false) NOT VALID")

    with pytest.raises(psycopg.errors.CheckViolation):
        keeper.retain(archive=True)

    assert len(keeper.ids()) == 3
    assert keeper.said == []


@pytest.mark.parametrize("archive", [False, True])
def test_of_two_runs_at_once_each_row_goes_by_one(keeper: Keeper, archive: bool) -> None:
    keeper.insert_many(Status.SENT, 600, days=70)
    shared = keeper.owned()
    for _ in range(20):
        keeper.insert(Status.SENT, 80, shared, keeper.owned())
    together = threading.Barrier(4)

    def run(_: int) -> int:
        with psycopg.connect(keeper.database_url, autocommit=True) as mine:
            together.wait(10)
            return retain_in(mine, keeper, archive)

    with ThreadPoolExecutor(4) as pool:
        removed = list(pool.map(run, range(4)))

    assert keeper.retain(archive=archive) + sum(removed) == 620
    assert keeper.ids() == set()
    assert len(keeper.ids("email_messages_archive")) == (620 if archive else 0)
    assert sum(signal.count for signal in keeper.said if isinstance(signal, Retained)) == 620
    assert keeper.recorded() == []
    assert not [path for path in keeper.folder.rglob("*") if path.is_file()]


def retain_in(connection: psycopg.Connection[Any], keeper: Keeper, archive: bool) -> int:
    mine = type(keeper)(connection, keeper.database_url, keeper.folder, keeper.stores, keeper.signals)
    return int(mine.retain(batch_size=10, archive=archive))


def test_a_row_that_somebody_has_locked_is_left_to_the_next_run(keeper: Keeper) -> None:
    locked, free = keeper.insert(Status.FAILED, 95), keeper.insert(Status.FAILED, 91)
    with psycopg.connect(keeper.database_url) as other:
        other.execute("SELECT FROM email_messages WHERE id = %s FOR UPDATE", [locked])
        assert keeper.retain() == 1
        assert keeper.ids() == {locked}

    assert free not in keeper.ids()
    assert keeper.retain() == 1


def test_a_row_that_is_requeued_or_accepted_meanwhile_stays(keeper: Keeper) -> None:
    requeued, accepted = keeper.insert(Status.FAILED, 95), keeper.insert(Status.FAILED, 95)

    assert transitions.requeue(keeper.connection, MAIL, requeued, reason="by test")
    assert transitions.accept(keeper.connection, MAIL, accepted, provider="memory", provider_message_id=None)
    keeper.retain()

    assert keeper.ids() == {requeued, accepted}


def test_what_was_done_is_told_though_the_database_breaks_off(keeper: Keeper) -> None:
    keeper.insert_many(Status.SENT, 250, days=70)

    def cut(_: float) -> bool:
        with psycopg.connect(keeper.database_url, autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s)", [keeper.connection.info.backend_pid])
        return False

    with pytest.raises(psycopg.OperationalError):
        keeper.retain(wait=cut)

    assert keeper.said == [Retained("SENT", 100, archived=False)]


def test_a_long_transaction_elsewhere_does_not_make_each_batch_slower_than_the_one_before(keeper: Keeper) -> None:
    keeper.insert_many(Status.SENT, 5000, days=70)
    keeper.connection.execute("SET enable_seqscan = off")
    reads: list[int] = []
    with psycopg.connect(keeper.database_url) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT count(*) FROM email_messages")

        def wait(_: float) -> bool:
            keeper.connection.execute("SELECT pg_stat_force_next_flush()")
            row = keeper.connection.execute(
                "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'email_messages_sent'"
            ).fetchone()
            assert row is not None
            reads.append(row[0])
            return False

        keeper.retain(batch_size=500, wait=wait)

    each = [after - before for before, after in pairwise(reads)]
    assert len(each) >= 8
    assert max(each) < 2000


def test_a_subscriber_that_fails_does_not_stop_retention(keeper: Keeper) -> None:
    signals = Signals()

    def broken(_: object) -> None:
        raise RuntimeError

    signals.subscribe(broken)
    keeper.insert(Status.SENT, 70)

    removed = retain(
        keeper.connection, MAIL, signals, status=Status.SENT, older_than_days=60, batch_size=10, archive=False
    )

    assert removed == 1
