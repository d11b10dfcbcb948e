"""One row in the producer's own transaction, through every kind of handle."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import psycopg2
import pytest
import sqlalchemy as sa
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker

from outbox_mail import (
    Attachment,
    InvalidRequestError,
    MessageRequest,
    Priority,
    aenqueue,
    aenqueue_many,
    enqueue,
    enqueue_many,
)

Connection = psycopg.Connection[Any]


def driver_url(url: str, driver: str) -> str:
    return url.replace("postgresql://", f"postgresql+{driver}://")


@contextmanager
def sqlalchemy_session(url: str) -> Iterator[Any]:
    engine = sa.create_engine(driver_url(url, "psycopg"))
    with Session(engine) as session:
        yield session
    engine.dispose()


@contextmanager
def sqlalchemy_scoped_session(url: str) -> Iterator[Any]:
    engine = sa.create_engine(driver_url(url, "psycopg2"))
    session = scoped_session(sessionmaker(engine))
    yield session
    session.remove()
    engine.dispose()


@contextmanager
def sqlalchemy_connection(url: str) -> Iterator[Any]:
    engine = sa.create_engine(driver_url(url, "psycopg"))
    with engine.connect() as connection:
        yield connection
    engine.dispose()


@contextmanager
def psycopg_connection(url: str) -> Iterator[Any]:
    with psycopg.connect(url, row_factory=dict_row) as connection:
        yield connection


@contextmanager
def psycopg2_connection(url: str) -> Iterator[Any]:
    from psycopg2.extras import RealDictCursor

    connection = psycopg2.connect(url, cursor_factory=RealDictCursor)
    yield connection
    connection.close()


@contextmanager
def django_connection(url: str) -> Iterator[Any]:
    from django.conf import settings
    from django.db.backends.postgresql.base import DatabaseWrapper
    from django.db.utils import load_backend

    if not settings.configured:
        settings.configure(USE_TZ=True)
    parts = psycopg.conninfo.conninfo_to_dict(url)
    backend = load_backend("django.db.backends.postgresql")
    assert backend.DatabaseWrapper is DatabaseWrapper
    connection = DatabaseWrapper(
        {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": parts["dbname"],
            "USER": parts["user"],
            "PASSWORD": parts.get("password", ""),
            "HOST": parts["host"],
            "PORT": parts["port"],
            "OPTIONS": {},
            "TIME_ZONE": None,
            "CONN_MAX_AGE": 0,
            "CONN_HEALTH_CHECKS": False,
            "AUTOCOMMIT": False,
            "ATOMIC_REQUESTS": False,
        }
    )
    yield connection
    connection.close()


Handle = Callable[[str], Any]
HANDLES: list[Handle] = [
    sqlalchemy_session,
    sqlalchemy_scoped_session,
    sqlalchemy_connection,
    psycopg_connection,
    psycopg2_connection,
    django_connection,
]

every_handle = pytest.mark.parametrize("handle", HANDLES, ids=lambda handle: handle.__name__)


def messages(connection: Connection) -> list[dict[str, Any]]:
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute("SELECT * FROM email_messages ORDER BY created_at, id").fetchall()


@every_handle
def test_a_row_is_there_after_commit_and_not_before(handle: Handle, database_url: str, connection: Connection) -> None:
    with handle(database_url) as mine:
        id_ = enqueue(mine, to="ayse@example.com", template="ORDER_CONFIRMED", parameters={"n": 1})
        assert messages(connection) == []
        mine.commit()

    (row,) = messages(connection)
    assert row["id"] == id_
    assert id_.version == 7
    assert (row["status"], row["claims"], row["published_at"]) == ("PENDING", 0, None)
    assert row["parameters"] == {"n": 1}


@every_handle
def test_a_rollback_leaves_nothing(handle: Handle, database_url: str, connection: Connection) -> None:
    with handle(database_url) as mine:
        enqueue(mine, to="ayse@example.com", template="ORDER_CONFIRMED")
        mine.rollback()

    assert messages(connection) == []


@every_handle
def test_asking_twice_with_one_key_yields_one_message(
    handle: Handle, database_url: str, connection: Connection
) -> None:
    with handle(database_url) as mine:
        first = enqueue(mine, to="a@example.com", template="T", idempotency_key="order-1")
        again = enqueue(mine, to="b@example.com", template="T", idempotency_key="order-1")
        mine.commit()
        later = enqueue(mine, to="c@example.com", template="T", idempotency_key="order-1")
        other = enqueue(mine, to="c@example.com", template="T", idempotency_key="order-2")
        mine.commit()

    assert first == again == later != other
    assert [row["to"] for row in messages(connection)] == [["a@example.com"], ["c@example.com"]]


@every_handle
def test_every_option_reaches_its_column(handle: Handle, database_url: str, connection: Connection) -> None:
    soon, later = datetime.now(UTC) + timedelta(hours=1), datetime.now(UTC) + timedelta(days=1)
    entity_id = uuid4()
    with handle(database_url) as mine:
        enqueue(
            mine,
            to=["Ayşe Yılmaz <ayse@example.com>", ("Öz, Can", "can@example.com")],
            cc="cc@example.com",
            bcc=["bcc@example.com"],
            template="ORDER_CONFIRMED",
            parameters={"name": 'Ayşe 😀 \\ " %s :x', "lines": [{"n": 1.5}, None, True], "tuple": (1, 2)},
            attachments=[
                Attachment.ref(filename="rapor.csv", content_type="text/csv", storage_ref="file:///x/rapor.csv")
            ],
            priority=Priority.HIGH,
            send_at=soon,
            expires_at=later,
            locale="tr-TR",
            sender="Shop <shop@example.com>",
            reply_to="help@example.com",
            headers={"X-Order": "42"},
            tags=["orders", "ankara"],
            entity=("order", entity_id),
            ordering_key="order-42",
            idempotency_key="k",
            schema_version=3,
        )
        mine.commit()

    (row,) = messages(connection)
    assert len(row["to"]) == 2
    assert "can@example.com" in row["to"][1]
    assert (row["cc"], row["bcc"]) == (["cc@example.com"], ["bcc@example.com"])
    assert row["parameters"] == {
        "name": 'Ayşe 😀 \\ " %s :x',
        "lines": [{"n": 1.5}, None, True],
        "tuple": [1, 2],
    }
    assert row["attachments"][0]["storage_ref"] == "file:///x/rapor.csv"
    assert (row["priority"], row["send_at"], row["due_at"], row["expires_at"]) == (1, soon, soon, later)
    assert (row["locale"], row["sender"], row["reply_to"]) == ("tr-TR", "Shop <shop@example.com>", ["help@example.com"])
    assert (row["headers"], row["tags"]) == ({"X-Order": "42"}, ["orders", "ankara"])
    assert (row["entity_type"], row["entity_id"]) == ("order", str(entity_id))
    assert (row["ordering_key"], row["idempotency_key"], row["schema_version"]) == ("order-42", "k", 3)
    assert row["ordering_seq"] is not None


def test_many_messages_take_one_statement_and_keep_their_order(database_url: str, connection: Connection) -> None:
    statements: list[str] = []
    engine = sa.create_engine(driver_url(database_url, "psycopg"))
    sa.event.listen(engine, "before_cursor_execute", lambda _c, _cu, sql, *_: statements.append(sql))
    asked = [
        MessageRequest(to=f"n{n}@example.com", template="T", ordering_key="k" if n % 2 else "j", parameters={"n": n})
        for n in range(500)
    ]
    with engine.begin() as mine:
        ids = enqueue_many(mine, asked)

    assert len([sql for sql in statements if "email_messages" in sql]) == 1
    found = {row["id"]: row for row in messages(connection)}
    assert [found[id_]["parameters"]["n"] for id_ in ids] == list(range(500))
    for parity in (0, 1):
        sequence = [found[id_]["ordering_seq"] for id_ in ids[parity::2]]
        assert sequence == sorted(sequence)
    engine.dispose()


def test_a_batch_with_keys_returns_the_message_that_stands_for_each(database_url: str, connection: Connection) -> None:
    with psycopg.connect(database_url, autocommit=True) as mine:
        earlier = enqueue(mine, to="a@example.com", template="T", idempotency_key="old")
        ids = enqueue_many(
            mine,
            [
                {"to": "b@example.com", "template": "T", "idempotency_key": "new"},
                {"to": "c@example.com", "template": "T"},
                {"to": "d@example.com", "template": "T", "idempotency_key": "new"},
                {"to": "e@example.com", "template": "T", "idempotency_key": "old"},
            ],
        )

    assert ids[0] == ids[2]
    assert ids[3] == earlier
    assert len(messages(connection)) == 3


def test_a_key_committed_by_somebody_else_meanwhile_returns_his_message(database_url: str) -> None:
    answers: list[UUID] = []

    def ask() -> None:
        with psycopg.connect(database_url) as mine:
            answers.append(enqueue(mine, to="b@example.com", template="T", idempotency_key="k"))

    with psycopg.connect(database_url) as first, psycopg.connect(database_url, autocommit=True) as watcher:
        id_ = enqueue(first, to="a@example.com", template="T", idempotency_key="k")
        second = threading.Thread(target=ask)
        second.start()
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        for _ in range(1000):
            if watcher.execute(waiting).fetchone() == (1,):
                break
            watcher.execute("SELECT pg_sleep(0.01)")
        first.commit()
        second.join(10)

    assert answers == [id_]


def test_ordering_numbers_follow_commits(database_url: str, connection: Connection) -> None:
    with psycopg.connect(database_url) as first:
        one = enqueue(first, to="a@example.com", template="T", ordering_key="k")
        done = threading.Event()

        def ask() -> None:
            with psycopg.connect(database_url) as second:
                enqueue(second, to="b@example.com", template="T", ordering_key="k")
            done.set()

        thread = threading.Thread(target=ask)
        thread.start()
        assert not done.wait(0.3)  # the key's lock is held until the first commits
        first.commit()
        thread.join(10)

    rows = sorted(messages(connection), key=lambda row: row["ordering_seq"])
    assert rows[0]["id"] == one


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]


def test_half_made_objects_of_a_session_are_not_flushed(database_url: str) -> None:
    engine = sa.create_engine(driver_url(database_url, "psycopg"))
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        order = Order()  # its name is not there yet: a flush would fail
        session.add(order)
        enqueue(session, to="a@example.com", template="T")
        assert order in session.new
        order.name = "now"
        session.commit()
    engine.dispose()


def test_a_savepoint_that_is_rolled_back_takes_its_message_along(database_url: str, connection: Connection) -> None:
    engine = sa.create_engine(driver_url(database_url, "psycopg"))
    with Session(engine) as session:
        enqueue(session, to="a@example.com", template="KEPT")
        with session.begin_nested() as savepoint:
            enqueue(session, to="a@example.com", template="LOST")
            savepoint.rollback()
        session.commit()
    engine.dispose()

    assert [row["template"] for row in messages(connection)] == ["KEPT"]


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
def test_asynchronous_sqlalchemy_handles_work_alike(database_url: str, connection: Connection, driver: str) -> None:
    async def produce() -> list[UUID]:
        engine = create_async_engine(driver_url(database_url, driver))
        async with AsyncSession(engine) as session:
            one = await aenqueue(session, to="Ayşe <a@example.com>", template="T", parameters={"ü": "ğ"}, tags=["x"])
            again = await aenqueue(session, to="a@example.com", template="T", idempotency_key="k", ordering_key="o")
            await session.commit()
        async with engine.begin() as mine:
            many = await aenqueue_many(mine, [{"to": "b@example.com", "template": "T", "idempotency_key": "k"}])
        async with AsyncSession(engine) as session:
            await aenqueue(session, to="a@example.com", template="LOST")
            await session.rollback()
        await engine.dispose()
        return [one, again, *many]

    one, again, many = asyncio.run(produce())
    assert again == many
    assert [row["id"] for row in messages(connection)] == [one, again]


def test_an_asynchronous_psycopg_connection_works(database_url: str, connection: Connection) -> None:
    async def produce() -> UUID:
        async with await psycopg.AsyncConnection.connect(database_url, row_factory=dict_row) as mine:
            return await aenqueue(mine, to="a@example.com", template="T")

    id_ = asyncio.run(produce())
    assert [row["id"] for row in messages(connection)] == [id_]


def test_the_doorbell_rings_once_and_only_while_the_relay_sleeps(database_url: str, connection: Connection) -> None:
    connection.execute("INSERT INTO outbox_relay_state (asleep) VALUES (false) ON CONFLICT DO NOTHING")
    connection.execute("LISTEN outbox_mail_doorbell")
    with psycopg.connect(database_url, autocommit=True) as mine:
        enqueue(mine, to="a@example.com", template="T")
        assert list(connection.notifies(timeout=0.2)) == []
        connection.execute("UPDATE outbox_relay_state SET asleep = true")
        enqueue(mine, to="a@example.com", template="T", send_at=datetime.now(UTC) + timedelta(hours=1))
        assert list(connection.notifies(timeout=0.2)) == []
        with mine.transaction():
            enqueue(mine, to="a@example.com", template="T")
            enqueue_many(mine, [{"to": "a@example.com", "template": "T", "idempotency_key": "k"}] * 2)
        assert len(list(connection.notifies(timeout=5, stop_after=1))) == 1
        assert list(connection.notifies(timeout=0.2)) == []


def test_the_trace_of_a_producer_that_uses_opentelemetry_travels_along(
    database_url: str, connection: Connection
) -> None:
    from opentelemetry import context, propagate, trace

    span = trace.NonRecordingSpan(
        trace.SpanContext(
            trace_id=0x1234, span_id=0x5678, is_remote=False, trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED)
        )
    )
    assert propagate.get_global_textmap() is not None
    token = context.attach(trace.set_span_in_context(span))
    try:
        with psycopg.connect(database_url) as mine:
            enqueue(mine, to="a@example.com", template="T")
    finally:
        context.detach(token)

    (row,) = messages(connection)
    assert row["trace_context"] == {"traceparent": "00-00000000000000000000000000001234-0000000000005678-01"}


@pytest.mark.parametrize(
    ("handle", "words"),
    [
        (None, "NoneType"),
        ("postgresql://localhost/x", "str"),
        (object(), "object"),
        (sa.create_engine("sqlite://"), "Engine"),
    ],
)
def test_a_wrong_handle_is_named_with_what_to_pass(handle: object, words: str) -> None:
    with pytest.raises(InvalidRequestError, match=rf"^handle: .*{words}.*Session") as caught:
        enqueue(handle, to="a@example.com", template="T")
    assert caught.value.field == "handle"


def test_a_connection_to_another_database_is_refused() -> None:
    with sa.create_engine("sqlite://").connect() as mine, pytest.raises(InvalidRequestError, match="sqlite"):
        enqueue(mine, to="a@example.com", template="T")


def test_an_asynchronous_handle_is_told_to_be_awaited(database_url: str) -> None:
    engine = create_async_engine(driver_url(database_url, "psycopg"))
    with pytest.raises(InvalidRequestError, match="aenqueue"):
        enqueue(AsyncSession(engine), to="a@example.com", template="T")

    async def wrong() -> None:
        with psycopg.connect(database_url) as mine:
            await aenqueue(mine, to="a@example.com", template="T")

    with pytest.raises(InvalidRequestError, match="AsyncSession"):
        asyncio.run(wrong())
