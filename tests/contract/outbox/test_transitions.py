"""Every status by every transition, on PostgreSQL: what the table allows happens, and all else changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from outbox_mail.mail.outbox import MAIL
from outbox_mail.outbox import transitions as t
from outbox_mail.outbox.columns import STATUS_STAMPS
from outbox_mail.outbox.status import TRANSITIONS, Status, Transition

Connection = psycopg.Connection[Any]

FAILURE = t.Failure("transient", "smtp_451", "try later", provider="memory")
CLAIMS = 3

MOVES: dict[str, Callable[[Connection, UUID, int], object]] = {
    "claim": lambda c, id_, _: t.claim(c, MAIL, id_, provider="memory") is not None,
    "accept": lambda c, id_, _: t.accept(c, MAIL, id_, provider="memory", provider_message_id="x"),
    "retry": lambda c, id_, claims: t.retry(c, MAIL, id_, claims, FAILURE, delay_seconds=30, countdown=False),
    "fail": lambda c, id_, claims: t.fail(c, MAIL, id_, claims, FAILURE),
    "release": lambda c, id_, claims: t.release(c, MAIL, id_, claims, FAILURE, delay_seconds=0),
    "reap": lambda c, _id, _: t.reap(c, MAIL, lease_seconds=60, max_reaps=5, limit=10).released == 1,
    "give_up": lambda c, _id, _: len(t.reap(c, MAIL, lease_seconds=60, max_reaps=1, limit=10).given_up) == 1,
    "expire": lambda c, _id, _: len(t.expire(c, MAIL)) == 1,
    "cancel": lambda c, id_, _: t.cancel(c, MAIL, id_, reason="by test"),
    "requeue": lambda c, id_, _: t.requeue(c, MAIL, id_, reason="by test"),
}


def insert(connection: Connection, status: Status, **columns: object) -> UUID:
    """A row in ``status`` that could have come there legally, an hour old."""
    values: dict[str, object] = {"id": uuid4(), "to": ["a@example.com"], "template": "T", "status": status.value}
    values["claims"] = 0 if status is Status.PENDING else CLAIMS
    if status in STATUS_STAMPS:
        values[STATUS_STAMPS[status]] = "now() - interval '1 hour'"
    if status is Status.FAILED:
        values["error_code"] = "smtp_550"
    values |= columns
    names = ", ".join(f'"{name}"' for name in values)
    places = ", ".join(
        str(value) if isinstance(value, str) and value.startswith("now()") else f"%({name})s"
        for name, value in values.items()
    )
    connection.execute(f"INSERT INTO email_messages ({names}) VALUES ({places})".encode(), values)
    return UUID(str(values["id"]))


def row(connection: Connection, id_: UUID) -> dict[str, Any]:
    with connection.cursor(row_factory=psycopg.rows.dict_row) as cursor:
        found = cursor.execute("SELECT * FROM email_messages WHERE id = %s", (id_,)).fetchone()
    assert found is not None
    return found


def test_every_transition_of_the_table_is_tried() -> None:
    assert set(MOVES) == {transition.name for transition in TRANSITIONS}


@pytest.mark.parametrize("transition", TRANSITIONS, ids=lambda transition: transition.name)
@pytest.mark.parametrize("source", list(Status))
def test_a_transition_happens_from_its_sources_and_from_nowhere_else(
    connection: Connection, source: Status, transition: Transition
) -> None:
    columns: dict[str, object] = {}
    if transition.name == "expire":
        columns["expires_at"] = "now() - interval '1 minute'"
    id_ = insert(connection, source, **columns)
    before = row(connection, id_)

    moved = MOVES[transition.name](connection, id_, CLAIMS)

    after = row(connection, id_)
    assert bool(moved) is (source in transition.sources)
    if moved:
        assert after["status"] == transition.target
        assert after["attempt_count"] == before["attempt_count"] + (1 if transition.counts_attempt else 0)
        for status, stamp in STATUS_STAMPS.items():
            assert (after[stamp] is not None) is (status is transition.target)
    else:
        assert after == before


@pytest.mark.parametrize("transition", [each for each in TRANSITIONS if each.needs_claim], ids=lambda each: each.name)
def test_a_holder_that_was_robbed_changes_nothing(connection: Connection, transition: Transition) -> None:
    id_ = insert(connection, Status.SENDING)
    before = row(connection, id_)

    assert not MOVES[transition.name](connection, id_, CLAIMS - 1)

    assert row(connection, id_) == before
    assert connection.execute("SELECT count(*) FROM email_attempts").fetchone() == (0,)


def test_acceptance_is_recorded_though_the_reaper_and_a_successor_were_faster(connection: Connection) -> None:
    id_ = insert(connection, Status.SENDING)
    t.reap(connection, MAIL, lease_seconds=60, max_reaps=5, limit=10)
    successor = t.claim(connection, MAIL, id_, provider="memory")
    assert successor is not None

    assert t.accept(connection, MAIL, id_, provider="memory", provider_message_id=None)
    assert not t.accept(connection, MAIL, id_, provider="memory", provider_message_id=None)
    assert not t.fail(connection, MAIL, id_, successor["claims"], FAILURE)
    assert row(connection, id_)["status"] == Status.SENT


def test_a_claim_is_refused_before_its_time_when_held_when_expired_and_out_of_turn(connection: Connection) -> None:
    connection.execute("INSERT INTO outbox_holds (scope, value, reason, held_by) VALUES ('tag', 'news', 'r', 'me')")
    early = insert(connection, Status.PENDING, due_at="now() + interval '1 minute'")
    expired = insert(connection, Status.PENDING, expires_at="now() - interval '1 minute'")
    held = insert(connection, Status.PENDING, tags=["news"])
    first = insert(connection, Status.PENDING, ordering_key="k", ordering_seq=1)
    second = insert(connection, Status.PENDING, ordering_key="k", ordering_seq=2)

    reasons = {}
    for id_ in (early, expired, held, second):
        assert t.claim(connection, MAIL, id_, provider="memory") is None
        reasons[id_] = t.withdraw(connection, MAIL, id_, provider="memory")

    assert reasons == {early: "not_due", expired: "expired", held: "held", second: "out_of_turn"}
    assert row(connection, held)["hold_id"] is not None
    assert t.claim(connection, MAIL, first, provider="memory") is not None
    assert t.claim(connection, MAIL, second, provider="memory") is None
    t.accept(connection, MAIL, first, provider="memory", provider_message_id=None)
    assert t.claim(connection, MAIL, second, provider="memory") is not None


def test_withdrawing_says_what_became_of_the_row(connection: Connection) -> None:
    taken, finished = insert(connection, Status.SENDING), insert(connection, Status.SENT)

    assert t.withdraw(connection, MAIL, taken, provider="memory") == "taken"
    assert t.withdraw(connection, MAIL, finished, provider="memory") == "finished"
    assert t.withdraw(connection, MAIL, uuid4(), provider="memory") == "gone"


def test_of_many_claims_at_once_exactly_one_wins(database_url: str, connection: Connection) -> None:
    from concurrent.futures import ThreadPoolExecutor

    id_ = insert(connection, Status.PENDING)

    def race(_: int) -> bool:
        with psycopg.connect(database_url, autocommit=True) as mine:
            return t.claim(mine, MAIL, id_, provider="memory") is not None

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(race, range(16))) == 1


def test_a_failed_attempt_is_written_down_and_success_writes_nothing(connection: Connection) -> None:
    id_ = insert(connection, Status.PENDING)
    first = t.claim(connection, MAIL, id_, provider="memory")
    assert first is not None
    t.retry(connection, MAIL, id_, first["claims"], FAILURE, delay_seconds=0, countdown=False)
    second = t.claim(connection, MAIL, id_, provider="memory")
    assert second is not None
    t.accept(connection, MAIL, id_, provider="memory", provider_message_id=None)

    attempts = connection.execute("SELECT claim, error_class, error_code, provider FROM email_attempts").fetchall()
    assert attempts == [(first["claims"], "transient", "smtp_451", "memory")]


def test_an_error_text_that_postgresql_cannot_store_is_stored_all_the_same(connection: Connection) -> None:
    id_ = insert(connection, Status.SENDING)
    hostile = t.Failure("permanent", "x" * 500, "nul \0 surrogate \ud800 " + "long" * 1000)

    assert t.fail(connection, MAIL, id_, CLAIMS, hostile)

    assert len(row(connection, id_)["error_message"]) == t.MAX_ERROR_MESSAGE_CHARS


def test_an_at_most_once_row_ends_failed_when_its_lease_runs_out(connection: Connection) -> None:
    id_ = insert(connection, Status.PENDING)
    t.claim(connection, MAIL, id_, provider="memory", at_most_once=["T"])
    connection.execute("UPDATE email_messages SET locked_at = now() - interval '1 hour'")

    reaped = t.reap(connection, MAIL, lease_seconds=60, max_reaps=5, limit=10)

    assert reaped == (0, [(id_, "T", "outcome_unknown", 0)])
    assert row(connection, id_)["error_code"] == "outcome_unknown"


def test_a_message_that_kills_its_workers_ends_failed(connection: Connection) -> None:
    id_ = insert(connection, Status.PENDING)
    for _ in range(3):
        assert t.claim(connection, MAIL, id_, provider="memory") is not None
        connection.execute("UPDATE email_messages SET locked_at = now() - interval '1 hour'")
        t.reap(connection, MAIL, lease_seconds=60, max_reaps=3, limit=10)

    after = row(connection, id_)
    assert (after["status"], after["error_code"], after["attempt_count"]) == (Status.FAILED, "poison", 0)


def test_requeueing_keeps_accepted_addresses_settled_and_lifts_a_passed_expiry(connection: Connection) -> None:
    outcomes = {"a@example.com": {"state": "accepted"}, "b@example.com": {"state": "refused"}}
    id_ = insert(
        connection,
        Status.FAILED,
        attempt_count=5,
        outcomes=psycopg.types.json.Jsonb(outcomes),
        expires_at="now() - interval '1 minute'",
    )

    assert t.requeue(connection, MAIL, id_, reason="by test")

    after = row(connection, id_)
    assert after["outcomes"] == {"a@example.com": {"state": "accepted"}}
    assert (after["attempt_count"], after["expires_at"], after["published_at"]) == (0, None, None)


@pytest.mark.parametrize(
    "columns",
    [
        "status = 'SENT'",
        "status = 'SENDING', claims = 1",
        "status = 'FAILED', failed_at = now()",
        "status = 'PENDING', locked_at = now()",
        "status = 'SENT', sent_at = now(), hold_id = 1",
        "status = 'DONE'",
        "status = 'SENDING', locked_at = now(), claims = 0",
        "ordering_key = 'k'",
        "priority = 9",
        "\"to\" = '{}'",
        "parameters = '[]'",
    ],
)
def test_the_database_refuses_an_impossible_row(connection: Connection, columns: str) -> None:
    insert(connection, Status.PENDING)
    with pytest.raises(psycopg.errors.CheckViolation):
        connection.execute(f"UPDATE email_messages SET {columns}".encode())
