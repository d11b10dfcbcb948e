"""Finding messages, whoever wrote them and whatever is in them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from outbox_mail.errors import NotFoundError, OutboxMailError, UsageError
from outbox_mail.operations import messages
from outbox_mail.operations.filters import Filter, message_id
from outbox_mail.operations.messages import HIDDEN, list_messages, show
from outbox_mail.outbox.status import Status

Connection = psycopg.Connection[Any]
Make = Callable[..., UUID]


def ids(connection: Connection, wanted: Filter | None = None, **options: Any) -> list[UUID]:
    return [row["id"] for row in list_messages(connection, wanted, **options).messages]


def all_pages(connection: Connection, wanted: Filter | None, limit: int) -> list[UUID]:
    found: list[UUID] = []
    after = None
    while True:
        page = list_messages(connection, wanted, limit=limit, after=after)
        found += [row["id"] for row in page.messages]
        if page.next is None:
            return found
        assert len(page.messages) == limit
        after = page.next


def test_each_condition_finds_its_messages_and_no_others(connection: Connection, make: Make) -> None:
    ayse = make(template="ORDER", tags=("vip",), entity=("order", "42"), ordering_key="k")
    fatma = make("FAILED", template="CODE", to="Fatma <FATMA@Example.com>", code="smtp_550")
    copied = make(to="x@example.com", bcc=("Fatma <fatma@example.com>",))

    assert ids(connection, Filter(template="CODE")) == [fatma]
    assert ids(connection, Filter(tag="vip")) == [ayse]
    assert ids(connection, Filter(entity=("order", "42"))) == [ayse]
    assert ids(connection, Filter(ordering_key="k")) == [ayse]
    assert ids(connection, Filter(error_code="smtp_550")) == [fatma]
    assert set(ids(connection, Filter(recipient="fatma@EXAMPLE.com"))) == {fatma, copied}
    assert ids(connection, Filter(recipient="atma@example.com")) == []
    assert ids(connection, Filter(recipient="%")) == []
    assert ids(connection, Filter(status=Status.FAILED)) == [fatma]
    assert ids(connection, Filter(status=Status.PENDING, template="CODE")) == []


def test_ages_count_back_from_now_by_the_database_s_clock(connection: Connection, make: Make) -> None:
    old, new = make(), make()
    connection.execute("UPDATE email_messages SET created_at = now() - interval '3 hours' WHERE id = %s", [old])

    assert ids(connection, Filter(created_since=timedelta(hours=2))) == [new]
    assert ids(connection, Filter(created_until=timedelta(hours=2))) == [old]
    with pytest.raises(UsageError, match="time zone"):
        Filter(created_since=datetime(2026, 1, 1))  # noqa: DTZ001


@pytest.mark.parametrize("status", [None, *Status])
@pytest.mark.parametrize("limit", [1, 3, 7])
def test_pages_show_each_message_once_also_with_equal_times(
    connection: Connection, make: Make, status: Status | None, limit: int
) -> None:
    made = {make(str(status or "PENDING"), priority=1 + number % 3) for number in range(7)}
    connection.execute(
        """UPDATE email_messages SET due_at = date_trunc('hour', now()),
            sent_at = date_trunc('hour', sent_at), failed_at = date_trunc('hour', failed_at)"""
    )

    found = all_pages(connection, Filter(status=status), limit)

    assert len(found) == 7
    assert set(found) == made


def test_pending_come_together_wherever_they_wait(connection: Connection, make: Make) -> None:
    free, out, held, in_line = make(), make(), make(), make()
    connection.execute("UPDATE email_messages SET published_at = now() WHERE id = %s", [out])
    connection.execute("UPDATE email_messages SET hold_id = 7 WHERE id = %s", [held])
    connection.execute("UPDATE email_messages SET hold_id = 0 WHERE id = %s", [in_line])

    assert ids(connection, Filter(status=Status.PENDING)) == [free, out, held, in_line]


def test_a_page_is_not_moved_by_messages_that_come_in_between(connection: Connection, make: Make) -> None:
    first = [make("SENT") for _ in range(4)]
    page = list_messages(connection, Filter(status=Status.SENT), limit=2)
    make("SENT")

    rest = ids(connection, Filter(status=Status.SENT), limit=10, after=page.next)

    assert [row["id"] for row in page.messages] + rest == first[::-1]


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        "ñ",
        "a" * 10_000,
        "WyJpZCJd",
        "bnVsbA",
        "W1tbW1tb",
        "WyJpZCIsbnVsbCwieCJd",
        "eyJhIjoxfQ",
        "\x00",
        "MTIz",
    ],
)
def test_a_cursor_that_no_page_gave_is_refused(connection: Connection, cursor: str) -> None:
    with pytest.raises(UsageError, match="after"):
        list_messages(connection, Filter(), after=cursor)


def test_a_cursor_with_a_time_that_is_none_is_refused(connection: Connection) -> None:
    for place in ("not a time", "", "\ud800", "\0", "2026-01-01' OR true --", "x" * 10_000):
        made = json.dumps(["sent_at", place, str(uuid4())]).encode()
        with pytest.raises(UsageError, match="after"):
            list_messages(connection, Filter(status=Status.SENT), after=base64.urlsafe_b64encode(made).decode())


def test_pages_also_end_where_times_are_infinite(connection: Connection, make: Make) -> None:
    made = [make() for _ in range(6)]
    for id_, due_at in zip(
        made, ("-infinity", "-infinity", "4000-01-01 BC", "infinity", "infinity", "20000-01-01"), strict=True
    ):
        connection.execute("UPDATE email_messages SET due_at = %s WHERE id = %s", [due_at, id_])

    found = all_pages(connection, Filter(status=Status.PENDING), 1)

    assert sorted(found) == sorted(made)


def test_a_cursor_of_another_order_is_refused(connection: Connection, make: Make) -> None:
    for _ in range(2):
        make("SENT")
    page = list_messages(connection, Filter(status=Status.SENT), limit=1)
    with pytest.raises(UsageError, match="after"):
        list_messages(connection, Filter(status=Status.FAILED), after=page.next)


@pytest.mark.parametrize("limit", [0, -1, 1001, 10**30])
def test_a_page_is_bounded(connection: Connection, limit: int) -> None:
    with pytest.raises(UsageError, match="limit"):
        list_messages(connection, limit=limit)


@pytest.mark.parametrize("value", ["", "a\0b", "\udcff", "x" * 1001])
@pytest.mark.parametrize("field", ["template", "tag", "recipient", "error_code", "ordering_key"])
def test_what_postgresql_can_not_hold_is_refused_by_name(field: str, value: str) -> None:
    with pytest.raises(UsageError, match=field):
        Filter(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["' OR true --", "%(x)s", "%", "\\", "{}", "'; DROP TABLE email_messages; --"])
def test_conditions_are_values_and_never_sql(connection: Connection, make: Make, value: str) -> None:
    make()
    for field in ("template", "tag", "recipient", "error_code", "ordering_key"):
        assert ids(connection, Filter(**{field: value})) == []  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "x", "1", "g" * 36, "0" * 31, "\x00", "é" * 32, "'; DROP", "9" * 5000])
def test_what_is_no_id_is_refused_in_one_short_line(text: str) -> None:
    with pytest.raises(UsageError, match="id") as refused:
        message_id(text)
    assert len(str(refused.value)) < 400


def test_one_message_is_shown_with_its_attempts_and_hold(connection: Connection, make: Make) -> None:
    id_ = make("FAILED", parameters={"code": 1234})

    found = show(connection, id_)

    assert found["status"] == "FAILED"
    assert found["parameters"] == {"code": HIDDEN}
    assert [(a["error_code"], a["error_class"], a["claim"]) for a in found["attempts"]] == [
        ("smtp_550", "permanent", 1)
    ]
    assert show(connection, id_, parameters=True)["parameters"] == {"code": 1234}


def test_a_message_in_the_archive_is_found_too(connection: Connection, make: Make) -> None:
    id_ = make("SENT")
    connection.execute(
        """WITH gone AS (DELETE FROM email_messages WHERE id = %s RETURNING *)
            INSERT INTO email_messages_archive SELECT gone.* FROM gone""",
        [id_],
    )

    assert show(connection, id_)["archived_at"] is not None


def test_a_message_that_is_not_there_is_not_found(connection: Connection) -> None:
    with pytest.raises(NotFoundError):
        show(connection, uuid4())


def test_values_that_python_can_not_represent_do_not_hide_a_row(connection: Connection) -> None:
    deep = "[" * 3000 + "]" * 3000
    connection.execute(
        """INSERT INTO email_messages ("to", template, parameters, due_at, expires_at)
            VALUES (ARRAY['a@example.com'], 'T', %s::jsonb, '-infinity', 'infinity'),
                (ARRAY['a@example.com'], 'T', %s::jsonb, '20000-01-01', '4000-01-01 BC')""",
        [f'{{"deep": {deep}}}', f'{{"long": {"9" * 5000}}}'],
    )

    page = list_messages(connection, Filter(status=Status.PENDING))

    assert len(page.messages) == 2
    for row in page.messages:
        assert show(connection, row["id"], parameters=True)["parameters"]


def test_a_question_that_takes_too_long_is_given_up_with_advice(
    connection: Connection, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    make()
    monkeypatch.setattr(messages, "_COLUMNS", "pg_sleep(5), " + messages._COLUMNS)
    monkeypatch.setattr(messages, "TIMEOUT_SECONDS", 0.1)

    with pytest.raises(OutboxMailError, match=r"no answer within 0\.1 s"):
        list_messages(connection)
    row = connection.execute("SHOW statement_timeout").fetchone()
    assert row == ("0",)
