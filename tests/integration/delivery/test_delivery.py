"""One message from claim to SENT, and every way in which that can go wrong."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb

from outbox_mail import Attachment
from outbox_mail.errors import ErrorClass, ProviderError
from outbox_mail.mail.outbox import MAIL
from outbox_mail.mail.providers.base import Composed, Deadline, RecipientOutcome, SendResult, State
from outbox_mail.outbox import transitions

Office = Any
Send = Callable[[Composed, Deadline], SendResult]

REFUSED = RecipientOutcome(State.REFUSED, "550", "5.1.1 no such user")
DEFERRED = RecipientOutcome(State.DEFERRED, "451", "4.7.1 greylisted")


def transient(**options: Any) -> ProviderError:
    return ProviderError("smtp_421", "try later", error_class=ErrorClass.TRANSIENT, **options)


def test_a_message_is_rendered_sent_and_recorded(office: Office) -> None:
    id_ = office.enqueue(parameters={"name": "Ayşe"}, cc="cc@example.com", bcc="bcc@example.com")

    assert office.deliver(id_) is None

    (mail,) = office.provider.sent
    assert (mail.id, mail.message_id) == (id_, f"<{id_.hex}@mail.example.com>")
    assert set(mail.recipients) == {"ayse@example.com", "cc@example.com", "bcc@example.com"}
    assert b"bcc@example.com" not in mail.data
    row = office.row(id_)
    assert (row["status"], row["provider"], row["attempt_count"], row["outcomes"]) == ("SENT", "memory", 0, None)
    assert office.said() == ["Claimed", "Accepted"]


def test_a_delivered_message_takes_one_claim_and_one_sent(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    id_ = office.enqueue()
    statements: list[str] = []
    original = psycopg.Cursor.execute

    def counting(cursor: Any, query: Any, *args: Any, **options: Any) -> Any:
        statements.append(" ".join(str(query).split()))
        return original(cursor, query, *args, **options)

    monkeypatch.setattr(psycopg.Cursor, "execute", counting)
    office.deliver(id_)

    assert [sql.split(" SET ")[0] for sql in statements] == ["UPDATE email_messages m"] * 2
    assert "status = 'SENDING'" in statements[0]
    assert "status = 'SENT'" in statements[1]


def test_the_same_row_is_composed_to_the_same_bytes_on_every_attempt(office: Office) -> None:
    id_ = office.enqueue()
    seen: list[Composed] = []
    original: Send = office.provider.send

    def failing(mail: Composed, deadline: Deadline) -> SendResult:
        seen.append(mail)
        if len(seen) < 3:
            raise transient()
        return original(mail, deadline)

    office.provider.send = failing
    for _ in range(3):
        office.deliver(id_)
        office.due_now()

    assert len({(mail.data, mail.message_id) for mail in seen}) == 1
    assert office.row(id_)["status"] == "SENT"


def test_a_message_that_is_not_there_to_be_sent_is_left_alone(office: Office) -> None:
    id_ = office.enqueue(send_at=datetime.now(UTC) + timedelta(hours=1))

    for each in (id_, uuid4()):
        assert office.deliver(each) is None

    assert office.provider.sent == []
    assert [signal.reason for signal in office.signals] == ["not_due", "gone"]


def test_a_second_delivery_of_one_id_withdraws(office: Office) -> None:
    id_ = office.enqueue()
    office.deliver(id_)
    office.deliver(id_)

    assert len(office.provider.sent) == 1
    assert office.signals[-1].reason == "finished"


def test_a_message_that_is_worthless_by_now_ends_failed(office: Office) -> None:
    id_ = office.enqueue(expires_at=datetime.now(UTC) + timedelta(hours=1))
    office.connection.execute("UPDATE email_messages SET expires_at = now() - interval '1 second'")

    office.deliver(id_)

    assert (office.row(id_)["status"], office.row(id_)["error_code"]) == ("FAILED", "expired")
    assert office.provider.sent == []
    assert office.said() == ["Withdrawn", "Failed"]


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ({"template": "UNKNOWN"}, "template_not_found"),
        ({"template": "NEEDS_NAME"}, "parameter_missing"),
        ({"template": "BROKEN"}, "template_error"),
    ],
)
def test_a_template_that_cannot_be_rendered_is_permanent(office: Office, message: dict[str, Any], code: str) -> None:
    office.template("NEEDS_NAME")
    office.template("BROKEN", body="{% if %}")
    id_ = office.enqueue(**message)

    assert office.deliver(id_) is None

    row = office.row(id_)
    assert (row["status"], row["error_code"], row["attempt_count"]) == ("FAILED", code, 1)
    assert message["template"] in row["error_message"]


def test_a_mended_template_heals_a_requeued_message(office: Office) -> None:
    office.template("FIXED", body="{{ missing }}")
    id_ = office.enqueue(template="FIXED")
    office.deliver(id_)
    office.template("FIXED", body="whole again")
    transitions.requeue(office.connection, MAIL, id_, reason="mended")
    until = time.monotonic() + 15
    while office.row(id_)["status"] != "SENT" and time.monotonic() < until:
        if office.row(id_)["status"] == "FAILED":
            transitions.requeue(office.connection, MAIL, id_, reason="mended")
        office.deliver(id_)

    assert b"whole again" in office.provider.sent[0].data


def test_a_transient_failure_is_retried_with_backoff_until_the_ceiling(office: Office) -> None:
    id_ = office.enqueue()
    delays = []
    for attempt in range(1, 4):
        office.provider.fail_next(transient())
        office.deliver(id_)
        row = office.row(id_)
        assert (row["attempt_count"], row["error_code"]) == (attempt, "smtp_421")
        if attempt < 3:
            assert row["status"] == "PENDING"
            assert row["published_at"] is None
            delays.append((row["due_at"] - datetime.now(UTC)).total_seconds())
            office.due_now()

    assert office.row(id_)["status"] == "FAILED"
    assert 29 < delays[0] < 37
    assert 119 < delays[1] < 145
    assert office.connection.execute("SELECT count(*) FROM email_attempts").fetchone() == (3,)


def test_a_wait_that_may_travel_as_a_countdown_is_returned_and_marked_out(office: Office) -> None:
    id_ = office.enqueue(priority=1)
    office.provider.fail_next(transient(retry_after_seconds=300))
    delivery = replace(office.delivery, reserve_countdown=lambda _seconds: True)

    countdown = delivery.deliver(id_)

    assert countdown is not None
    assert (countdown.id, countdown.priority) == (id_, 1)
    assert countdown.delay_seconds >= 300
    assert office.row(id_)["published_at"] is not None
    delivery.unpublish([id_])
    assert office.row(id_)["published_at"] is None


def test_an_operators_fault_burns_no_attempt(office: Office) -> None:
    id_ = office.enqueue()
    office.provider.fail_next(ProviderError("smtp_535", "bad credentials", error_class=ErrorClass.OPERATOR))

    office.deliver(id_)

    row = office.row(id_)
    assert (row["status"], row["attempt_count"], row["error_code"]) == ("PENDING", 0, "smtp_535")
    assert row["due_at"] > datetime.now(UTC) + timedelta(seconds=50)
    assert office.said() == ["Claimed", "Released"]


def test_an_unknown_outcome_is_retried_unless_the_template_forbids_it(office: Office) -> None:
    unknown = ProviderError("connection_lost", "no final reply", error_class=ErrorClass.UNKNOWN)
    office.template("ONCE", body="x", manifest='delivery = "at_most_once"\n')
    usual = office.enqueue()
    office.provider.fail_next(unknown)
    office.deliver(usual)
    # The list of at-most-once templates is kept for a while; a new delivery reads it anew.
    fresh = replace(office.delivery, templates=type(office.delivery.templates)([office.folder]))
    once = office.enqueue(template="ONCE")
    office.provider.fail_next(unknown)
    fresh.deliver(once)

    assert office.row(usual)["status"] == "PENDING"
    row = office.row(once)
    assert (row["status"], row["error_code"]) == ("FAILED", "outcome_unknown")


def test_a_templates_own_ceiling_of_attempts_counts(office: Office) -> None:
    office.template("IMPATIENT", body="x", manifest="max_attempts = 1\n")
    id_ = office.enqueue(template="IMPATIENT")
    office.provider.fail_next(transient())

    office.deliver(id_)

    assert office.row(id_)["status"] == "FAILED"


def test_a_refused_recipient_is_recorded_and_the_rest_is_sent(office: Office) -> None:
    id_ = office.enqueue(to=["a@example.com", "b@example.com"])
    office.provider.answer("b@example.com", REFUSED)

    office.deliver(id_)

    row = office.row(id_)
    assert (row["status"], row["error_code"]) == ("SENT", "some_recipients_refused")
    assert row["outcomes"]["a@example.com"]["state"] == "accepted"
    assert row["outcomes"]["b@example.com"] == {"state": "refused", "code": "550", "text": "5.1.1 no such user"}
    assert "no such user" in row["error_message"]


def test_only_those_refused_for_now_are_tried_again(office: Office) -> None:
    id_ = office.enqueue(to=["a@example.com", "b@example.com", "c@example.com"])
    office.provider.answer("b@example.com", REFUSED)
    office.provider.answer("c@example.com", DEFERRED)
    office.deliver(id_)
    assert office.row(id_)["status"] == "PENDING"
    office.due_now()
    office.provider.answer("c@example.com", RecipientOutcome(State.ACCEPTED))

    office.deliver(id_)

    assert [list(mail.recipients) for mail in office.provider.sent][1:] == [["c@example.com"]]
    row = office.row(id_)
    states = {address: outcome["state"] for address, outcome in row["outcomes"].items()}
    assert states == {"a@example.com": "accepted", "b@example.com": "refused", "c@example.com": "accepted"}
    assert (row["status"], row["error_code"]) == ("SENT", "some_recipients_refused")
    assert office.provider.sent[1].data == office.provider.sent[0].data


def test_a_recipient_refused_for_now_until_the_ceiling_is_given_up(office: Office) -> None:
    id_ = office.enqueue(to=["a@example.com", "c@example.com"])
    office.provider.answer("c@example.com", DEFERRED)
    for _ in range(3):
        office.deliver(id_)
        office.due_now()

    row = office.row(id_)
    assert (row["status"], row["error_code"]) == ("SENT", "some_recipients_refused")
    assert row["outcomes"]["c@example.com"]["state"] == "refused"
    assert sum("a@example.com" in mail.recipients for mail in office.provider.sent) == 1


def test_a_message_whose_recipients_are_all_refused_ends_failed_with_the_reason(office: Office) -> None:
    id_ = office.enqueue()
    office.provider.answer("ayse@example.com", REFUSED)

    office.deliver(id_)

    row = office.row(id_)
    assert (row["status"], row["error_code"]) == ("FAILED", "recipients_refused")
    assert "550 5.1.1 no such user" in row["error_message"]


def test_attachments_are_read_from_the_allowed_store_only(office: Office) -> None:
    store = office.folder.parent / "files"
    (store / "report.csv").write_text("a;b\n")
    secret = office.folder.parent / "secret.txt"
    secret.write_text("x")
    good = office.enqueue(
        attachments=[
            Attachment.ref(filename="r.csv", content_type="text/csv", storage_ref=f"file://{store}/report.csv")
        ]
    )
    missing = office.enqueue(
        attachments=[
            Attachment.ref(filename="m.csv", content_type="text/csv", storage_ref=f"file://{store}/missing.csv")
        ]
    )
    outside = office.enqueue(
        attachments=[Attachment.ref(filename="s.txt", content_type="text/plain", storage_ref=f"file://{secret}")]
    )
    for id_ in (good, missing, outside):
        office.deliver(id_)

    assert b"r.csv" in office.provider.sent[0].data
    assert office.row(missing)["error_code"] == "attachment_missing"
    assert office.row(outside)["error_code"] == "attachment_forbidden"
    assert len(office.provider.sent) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"attachments": Jsonb([5])},
        {"attachments": Jsonb([{"filename": "a\r\nb", "content_type": "x", "storage_ref": "y"}])},
        {"headers": Jsonb(["x"])},
        {"headers": Jsonb({"X-A": "b\r\nBcc: x@example.com"})},
        {"headers": Jsonb({"Bcc": "x@example.com"})},
        {"to": ["not an address"]},
        {"to": ["a@example.com\r\nBcc: b@example.com"]},
        {"sender": "nobody"},
        {"reply_to": ["\x01"]},
        {"template": "../../etc/passwd"},
        {"locale": "../../x\x07", "template": "UNKNOWN"},
    ],
)
def test_a_row_that_no_enqueue_would_write_ends_failed(office: Office, change: dict[str, Any]) -> None:
    id_ = office.enqueue()
    columns = ", ".join(f'"{name}" = %({name})s' for name in change)
    office.connection.execute(f"UPDATE email_messages SET {columns}".encode(), change)

    office.deliver(id_)

    row = office.row(id_)
    assert row["status"] == "FAILED", row["error_message"]
    assert office.provider.sent == []


def test_outcomes_of_a_strange_shape_do_not_stop_a_message(office: Office) -> None:
    id_ = office.enqueue()
    office.connection.execute("UPDATE email_messages SET outcomes = '[1]', trace_context = '\"x\"'")

    office.deliver(id_)

    assert office.row(id_)["status"] == "SENT"


def test_a_bug_in_a_part_is_retried_and_names_no_value_of_the_row(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    id_ = office.enqueue(parameters={"secret": "hunter2"})

    def broken(mail: Composed, deadline: Deadline) -> SendResult:
        raise RuntimeError("hunter2 " + mail.recipients[0])

    office.provider.send = broken
    office.deliver(id_)

    row = office.row(id_)
    assert (row["status"], row["error_code"]) == ("PENDING", "internal_error")
    assert "hunter2" not in row["error_message"]
    assert caplog.records[-1].message == "delivery_internal_error"
    assert "hunter2" not in caplog.text
    assert "ayse@example.com" not in caplog.text


def test_no_connection_is_held_while_the_provider_is_called(office: Office) -> None:
    id_ = office.enqueue()
    original: Send = office.provider.send
    states: list[tuple[Any, ...]] = []

    def watching(mail: Composed, deadline: Deadline) -> SendResult:
        states.extend(
            office.connection.execute(
                "SELECT state FROM pg_stat_activity WHERE application_name = 'outbox-mail test'"
                " AND datname = current_database()"
            ).fetchall()
        )
        pool = office.delivery.database._pool
        states.append((pool.get_stats()["pool_available"] == pool.get_stats()["pool_size"],))
        return original(mail, deadline)

    office.provider.send = watching
    office.deliver(id_)

    assert set(states) == {("idle",), (True,)}


def test_acceptance_is_recorded_though_the_connections_were_cut_meanwhile(office: Office) -> None:
    id_ = office.enqueue()
    original: Send = office.provider.send

    def cutting(mail: Composed, deadline: Deadline) -> SendResult:
        result = original(mail, deadline)
        office.connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'outbox-mail test' AND datname = current_database()"
        )
        return result

    office.provider.send = cutting
    office.deliver(id_)

    assert office.row(id_)["status"] == "SENT"
    assert office.said()[-1] == "Accepted"


def test_a_holder_that_was_robbed_says_so_and_changes_nothing(office: Office) -> None:
    id_ = office.enqueue()

    def slow(mail: Composed, deadline: Deadline) -> SendResult:
        office.connection.execute("UPDATE email_messages SET locked_at = now() - interval '1 hour'")
        transitions.reap(office.connection, MAIL, lease_seconds=60, max_reaps=5, limit=10)
        raise transient()

    office.provider.send = slow
    office.deliver(id_)

    assert office.row(id_)["attempt_count"] == 0
    assert office.said()[-1] == "ClaimLost"


def test_a_duplicate_is_counted_and_a_late_acceptance_still_counts(office: Office) -> None:
    id_ = office.enqueue()
    original: Send = office.provider.send

    def robbed(mail: Composed, deadline: Deadline) -> SendResult:
        office.provider.send = original
        office.connection.execute("UPDATE email_messages SET locked_at = now() - interval '1 hour'")
        transitions.reap(office.connection, MAIL, lease_seconds=60, max_reaps=5, limit=10)
        office.deliver(id_)
        return original(mail, deadline)

    office.provider.send = robbed
    office.deliver(id_)

    assert office.row(id_)["status"] == "SENT"
    assert office.said()[-1] == "AcceptedAgain"


def test_finishing_the_head_of_a_key_wakes_the_relay_for_the_next(office: Office) -> None:
    first = office.enqueue(ordering_key="k")
    second = office.enqueue(ordering_key="k")
    office.connection.execute("INSERT INTO outbox_relay_state (asleep) VALUES (true)")
    office.connection.execute("LISTEN outbox_mail_doorbell")

    office.deliver(second)
    assert office.row(second)["status"] == "PENDING"
    office.deliver(first)

    assert len(list(office.connection.notifies(timeout=5, stop_after=1))) == 1
    office.deliver(second)
    assert office.row(second)["status"] == "SENT"


def test_times_that_no_calendar_holds_are_refused_by_the_database(office: Office) -> None:
    id_ = office.enqueue()
    for column in ("created_at", "send_at"):
        with pytest.raises(psycopg.errors.CheckViolation):
            office.connection.execute(f"UPDATE email_messages SET {column} = 'infinity'".encode())
    office.connection.execute("UPDATE email_messages SET expires_at = 'infinity'")

    office.deliver(id_)

    assert office.connection.execute("SELECT status FROM email_messages").fetchall() == [("SENT",)]
