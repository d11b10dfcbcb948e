"""Random interleavings of all that can happen to messages, on PostgreSQL, against a model of a few lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from psycopg.rows import dict_row

from outbox_mail import enqueue
from outbox_mail.mail.outbox import MAIL
from outbox_mail.names import Priority
from outbox_mail.outbox import due, transitions
from outbox_mail.outbox.columns import STATUS_STAMPS
from outbox_mail.outbox.retention import retain
from outbox_mail.outbox.signals import Signals
from outbox_mail.outbox.status import Status
from outbox_mail.outbox.transitions import Failure

MAX_REAPS = 3
FAILURE = Failure("transient", "smtp_451", "later", provider="memory")


@dataclass
class Modelled:
    """What the model knows of one message."""

    status: Status = Status.PENDING
    claims: int = 0
    attempts: int = 0
    reaps: int = 0
    accepted: int = 0
    """How often a provider took it."""


@dataclass(frozen=True)
class Held:
    """A claim that some worker holds, or believes that it holds."""

    id: UUID
    claims: int


class Life(RuleBasedStateMachine):
    """Workers, a relay, a reaper, people and retention, in any order; each rule checks what the database answered."""

    connection: psycopg.Connection[Any]
    messages = Bundle("messages")
    holders = Bundle("holders")

    @initialize()
    def begin(self) -> None:
        self.connection.execute("DELETE FROM email_messages")
        self.model: dict[UUID, Modelled] = {}

    def forward(self) -> None:
        """Let the database's clock pass every due time."""
        self.connection.execute("UPDATE email_messages SET due_at = now() WHERE due_at > now()")

    def mine(self, held: Held) -> Modelled | None:
        """The message if the claim is still the holder's."""
        known = self.model.get(held.id)
        if known is not None and known.status is Status.SENDING and known.claims == held.claims:
            return known
        return None

    # Few messages, so that things happen to the same one.
    @precondition(lambda self: len(self.model) < 2)
    @rule(target=messages)
    def enqueue(self) -> UUID:
        id_ = enqueue(self.connection, to="a@example.com", template="T")
        self.model[id_] = Modelled()
        return id_

    @rule(id_=messages)
    def roll_back(self, id_: UUID) -> None:
        with self.connection.transaction(force_rollback=True):
            transitions.cancel(self.connection, MAIL, id_, reason="never mind")
            enqueue(self.connection, to="b@example.com", template="LOST")

    @rule()
    def publish(self) -> None:
        with self.connection.transaction():
            due.take(self.connection, MAIL, dict.fromkeys(Priority, 100), limit=100, provider="memory")

    @rule(target=holders, id_=messages)
    def claim(self, id_: UUID) -> Held:
        known = self.model.get(id_)
        row = transitions.claim(self.connection, MAIL, id_, provider="memory")
        assert (row is not None) is (known is not None and known.status is Status.PENDING)
        if known is None or row is None:
            reason = transitions.withdraw(self.connection, MAIL, id_, provider="memory")
            wanted = {None: "gone", Status.SENDING: "taken", Status.SENT: "finished", Status.FAILED: "finished"}
            assert reason == wanted[known.status if known else None]
            return Held(id_, -1)
        known.status, known.claims = Status.SENDING, known.claims + 1
        assert row["claims"] == known.claims
        return Held(id_, known.claims)

    @rule(held=holders)
    def accept(self, held: Held) -> None:
        known = self.model.get(held.id)
        recorded = transitions.accept(self.connection, MAIL, held.id, provider="memory", provider_message_id=None)
        assert recorded is (known is not None and known.status is not Status.SENT)
        if known is not None:
            known.status, known.accepted = Status.SENT, known.accepted + 1

    @rule(held=holders, countdown=st.booleans())
    def retry(self, held: Held, countdown: bool) -> None:
        known = self.mine(held)
        moved = transitions.retry(
            self.connection, MAIL, held.id, held.claims, FAILURE, delay_seconds=60, countdown=countdown
        )
        assert moved is (known is not None)
        if known is not None:
            known.status, known.attempts = Status.PENDING, known.attempts + 1
        self.forward()

    @rule(held=holders)
    def fail(self, held: Held) -> None:
        known = self.mine(held)
        assert transitions.fail(self.connection, MAIL, held.id, held.claims, FAILURE) is (known is not None)
        if known is not None:
            known.status, known.attempts = Status.FAILED, known.attempts + 1

    @rule(held=holders)
    def release(self, held: Held) -> None:
        known = self.mine(held)
        moved = transitions.release(self.connection, MAIL, held.id, held.claims, FAILURE, delay_seconds=60)
        assert moved is (known is not None)
        if known is not None:
            known.status = Status.PENDING
        self.forward()

    @rule(id_=messages)
    def fall_silent_and_be_reaped(self, id_: UUID) -> None:
        self.connection.execute(
            "UPDATE email_messages SET locked_at = now() - interval '1 hour' WHERE id = %s AND locked_at IS NOT NULL",
            [id_],
        )
        reaped = transitions.reap(self.connection, MAIL, lease_seconds=60, max_reaps=MAX_REAPS, limit=100)
        known = self.model.get(id_)
        if known is None or known.status is not Status.SENDING:
            assert reaped.total == 0
            return
        known.reaps += 1
        known.status = Status.FAILED if known.reaps >= MAX_REAPS else Status.PENDING
        assert (reaped.released, len(reaped.given_up)) == ((0, 1) if known.status is Status.FAILED else (1, 0))

    @rule(id_=messages)
    def cancel(self, id_: UUID) -> None:
        known = self.model.get(id_)
        moved = transitions.cancel(self.connection, MAIL, id_, reason="by test")
        assert moved is (known is not None and known.status is Status.PENDING)
        if known is not None and moved:
            known.status = Status.FAILED

    @rule(id_=messages)
    def requeue(self, id_: UUID) -> None:
        known = self.model.get(id_)
        moved = transitions.requeue(self.connection, MAIL, id_, reason="by test")
        assert moved is (known is not None and known.status is Status.FAILED)
        if known is not None and moved:
            known.status, known.attempts, known.reaps = Status.PENDING, 0, 0

    @rule(status=st.sampled_from([Status.SENT, Status.FAILED]), archive=st.booleans())
    def retain(self, status: Status, archive: bool) -> None:
        removed = retain(
            self.connection,
            MAIL,
            Signals(),
            status=status,
            older_than_days=-1,
            batch_size=10,
            archive=archive,
            pause_seconds=0,
        )
        gone = [id_ for id_, known in self.model.items() if known.status is status]
        assert removed == len(gone)
        for id_ in gone:
            del self.model[id_]

    @invariant()
    def the_table_is_what_the_model_says(self) -> None:
        with self.connection.cursor(row_factory=dict_row) as cursor:
            rows = cursor.execute("SELECT * FROM email_messages").fetchall()
        assert {row["id"] for row in rows} == set(self.model)
        for row in rows:
            known = self.model[row["id"]]
            assert (row["status"], row["claims"]) == (known.status, known.claims)
            assert (row["attempt_count"], row["reap_count"]) == (known.attempts, known.reaps)
            assert (row["status"] == Status.SENT) is (known.accepted > 0)
            for status, stamp in STATUS_STAMPS.items():
                assert (row[stamp] is not None) is (row["status"] == status)


def test_no_interleaving_breaks_the_states(connection: psycopg.Connection[Any]) -> None:
    machine = type("Lived", (Life,), {"connection": connection})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=250, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
