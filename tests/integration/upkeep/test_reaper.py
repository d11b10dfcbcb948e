"""The reaper frees what no worker holds any more, and tells of every message that it gives up."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from outbox_mail.mail.outbox import MAIL
from outbox_mail.outbox.reaper import run_reaper
from outbox_mail.outbox.signals import Failed, Reaped, Signals
from outbox_mail.outbox.status import Status

Keeper = Any

HOUR = 1 / 24


def reap(keeper: Keeper, **changes: Any) -> Reaped:
    wanted: dict[str, Any] = {"lease_seconds": 60, "max_reaps": 3, "batch_size": 10}
    return run_reaper(keeper.connection, MAIL, keeper.signals, **wanted | changes)


def statuses(keeper: Keeper) -> dict[str, int]:
    rows = keeper.connection.execute("SELECT status, count(*) FROM email_messages GROUP BY 1").fetchall()
    return dict(rows)


def test_rows_whose_lease_ran_out_go_back_in_as_many_batches_as_it_takes(keeper: Keeper) -> None:
    keeper.insert_many(Status.SENDING, 35, days=HOUR)
    held = keeper.insert(Status.SENDING, 0)

    assert reap(keeper) == Reaped(35, 0)

    assert statuses(keeper) == {"PENDING": 35, "SENDING": 1}
    assert keeper.connection.execute("SELECT id FROM email_messages WHERE status = 'SENDING'").fetchall() == [(held,)]
    assert keeper.said == [Reaped(35, 0)]


def test_every_message_that_is_given_up_is_told_as_a_dead_letter(keeper: Keeper) -> None:
    poison = keeper.insert(Status.SENDING, HOUR, template="POISON", reap_count=2, attempt_count=4)
    once = keeper.insert(Status.SENDING, HOUR, template="ONCE", at_most_once=True)
    keeper.insert(Status.SENDING, HOUR)

    assert reap(keeper) == Reaped(1, 2)

    failed = {signal for signal in keeper.said if isinstance(signal, Failed)}
    assert failed == {Failed(poison, "POISON", "poison", 4), Failed(once, "ONCE", "outcome_unknown", 0)}
    assert keeper.said[-1] == Reaped(1, 2)


def test_a_run_that_finds_nothing_says_nothing(keeper: Keeper) -> None:
    keeper.insert(Status.SENDING, 0)
    for status in set(Status) - {Status.SENDING}:
        keeper.insert(status, 3000)

    assert reap(keeper) == Reaped(0, 0)
    assert keeper.said == []


def test_of_several_reapers_at_once_each_row_is_freed_by_one(keeper: Keeper) -> None:
    keeper.insert_many(Status.SENDING, 200, days=HOUR)
    keeper.connection.execute("UPDATE email_messages SET reap_count = 2 WHERE random() < 0.5")

    def run(_: int) -> Reaped:
        with psycopg.connect(keeper.database_url, autocommit=True) as mine:
            return run_reaper(mine, MAIL, keeper.signals, lease_seconds=60, max_reaps=3, batch_size=7)

    with ThreadPoolExecutor(4) as pool:
        runs = list(pool.map(run, range(4)))
    runs.append(reap(keeper))

    after = statuses(keeper)
    assert sum(run.released for run in runs) == after["PENDING"]
    assert sum(run.given_up for run in runs) == after["FAILED"]
    failed = [signal.message_id for signal in keeper.said if isinstance(signal, Failed)]
    assert len(failed) == len(set(failed)) == after["FAILED"]
    assert keeper.connection.execute("SELECT count(*) FROM email_attempts").fetchone() == (200,)


def test_what_was_reaped_is_told_though_the_database_breaks_off(keeper: Keeper) -> None:
    keeper.insert_many(Status.SENDING, 20, days=HOUR)
    keeper.connection.execute("UPDATE email_messages SET reap_count = 2")
    signals = Signals()
    said: list[object] = []

    def cut(signal: object) -> None:
        said.append(signal)
        if len(said) == 1:
            with psycopg.connect(keeper.database_url, autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s)", [keeper.connection.info.backend_pid])

    signals.subscribe(cut)

    with pytest.raises(psycopg.OperationalError):
        run_reaper(keeper.connection, MAIL, signals, lease_seconds=60, max_reaps=3, batch_size=10)

    assert [type(signal) for signal in said] == [Failed] * 10 + [Reaped]
    assert said[-1] == Reaped(0, 10)
