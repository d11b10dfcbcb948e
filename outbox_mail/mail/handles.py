"""Runs one statement on whatever connection a producer has, on that connection and in its transaction.

Nothing here opens, commits, flushes or closes anything.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

from sqlalchemy import Connection, TextClause, text

from outbox_mail.errors import InvalidRequestError

Rows = Sequence[Sequence[Any]]
Run = Callable[[str, str], Rows]
"""Takes the statement, written with ``PARAMETER``, and the parameter's value."""

PARAMETER: Final = "%(rows)s"

_ACCEPTED: Final = "Pass what your own writes use: a SQLAlchemy Session or Connection, a psycopg or Django connection"


@cache
def _clause(sql: str) -> TextClause:
    return text(sql.replace(PARAMETER, ":rows"))


def _loaded(module: str, name: str) -> tuple[type, ...]:
    """The class, if its module was imported by somebody; a handle can't be of a class that nobody imported."""
    found = sys.modules.get(module)
    return (getattr(found, name),) if found is not None and hasattr(found, name) else ()


def _is(handle: object, module: str, *names: str) -> bool:
    return any(isinstance(handle, _loaded(module, name)) for name in names)


def _is_django(handle: object) -> bool:
    return hasattr(handle, "vendor") and hasattr(handle, "settings_dict") and hasattr(handle, "cursor")


def _wrong(handle: object, advice: str) -> InvalidRequestError:
    return InvalidRequestError("handle", f"{type(handle).__module__}.{type(handle).__qualname__} can't be used", advice)


def runner(handle: Any) -> Run:
    """How to run a statement on a synchronous ``handle``.

    Raises ``InvalidRequestError`` for the field ``handle`` when it is none of the supported kinds, or not PostgreSQL.
    """
    if isinstance(handle, Connection):
        return _on_connection(handle)
    if _is(handle, "sqlalchemy.orm", "Session", "scoped_session"):
        # connection() begins the session's transaction if need be, and flushes nothing: half-made objects stay so.
        return _on_connection(handle.connection())
    if _is(handle, "psycopg", "Connection"):
        return lambda sql, value: _psycopg(handle, sql, value)
    if _is(handle, "psycopg2.extensions", "connection"):
        return lambda sql, value: _psycopg2(handle, sql, value)
    if _is_django(handle):
        return _on_django(handle)
    if is_async(handle):
        raise _wrong(handle, "It is asynchronous: await aenqueue or aenqueue_many instead")
    raise _wrong(handle, _ACCEPTED)


def is_async(handle: object) -> bool:
    """Whether ``handle`` is one of the asynchronous kinds."""
    return _is(handle, "sqlalchemy.ext.asyncio", "AsyncSession", "async_scoped_session", "AsyncConnection") or _is(
        handle, "psycopg", "AsyncConnection"
    )


async def run_async(handle: Any, sql: str, value: str) -> Rows:
    """Run the statement on an asynchronous ``handle``; errors as in ``runner``."""
    if _is(handle, "psycopg", "AsyncConnection"):
        async with handle.cursor(row_factory=sys.modules["psycopg.rows"].tuple_row) as cursor:
            await cursor.execute(sql, {"rows": value})
            fetched: Rows = await cursor.fetchall()
            return fetched
    if _is(handle, "sqlalchemy.ext.asyncio", "AsyncSession", "async_scoped_session"):
        connection = await handle.connection()
    elif _is(handle, "sqlalchemy.ext.asyncio", "AsyncConnection"):
        connection = handle
    else:
        raise _wrong(handle, "Pass a SQLAlchemy AsyncSession or AsyncConnection or a psycopg AsyncConnection")
    _require_postgresql(handle, connection.dialect.name)
    rows: Rows = (await connection.execute(_clause(sql), {"rows": value})).all()
    return rows


def _require_postgresql(handle: object, dialect: str) -> None:
    if dialect != "postgresql":
        raise _wrong(handle, f"It is connected to {dialect}; the outbox lives in PostgreSQL")


def _on_connection(connection: Connection) -> Run:
    _require_postgresql(connection, connection.dialect.name)
    return lambda sql, value: connection.execute(_clause(sql), {"rows": value}).all()


def _psycopg(connection: Any, sql: str, value: str) -> Rows:
    # The producer's own row factory must not decide what we read.
    with connection.cursor(row_factory=sys.modules["psycopg.rows"].tuple_row) as cursor:
        return list(cursor.execute(sql, {"rows": value}).fetchall())


def _psycopg2(connection: Any, sql: str, value: str) -> Rows:
    with connection.cursor(cursor_factory=sys.modules["psycopg2.extensions"].cursor) as cursor:
        cursor.execute(sql, {"rows": value})
        return list(cursor.fetchall())


def _on_django(connection: Any) -> Run:
    _require_postgresql(connection, str(connection.vendor))

    def run(sql: str, value: str) -> Rows:
        with connection.cursor() as cursor:
            cursor.execute(sql, {"rows": value})
            return list(cursor.fetchall())

    return run
