"""What producers call: one row in their own transaction, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Mapping
from typing import Any, Final, Unpack
from uuid import UUID

from outbox_mail.errors import InvalidRequestError, OutboxMailError
from outbox_mail.mail.handles import PARAMETER, Rows, run_async, runner
from outbox_mail.mail.insert import earlier_sql, insert_sql
from outbox_mail.mail.request import MessageRequest, checked_row, rows_json

_EARLIER: Final = earlier_sql(PARAMETER)
_INSERT: Final = {
    (keyed, ordered): insert_sql(PARAMETER, keyed=keyed, ordered=ordered)
    for keyed in (False, True)
    for ordered in (False, True)
}
_ROUNDS: Final = 3
"""How often a row is asked for whose idempotency key was given up by another between two statements."""

_Statements = Generator[tuple[str, str], Rows, list[UUID]]
"""Yields a statement and its parameter, is sent the rows, and returns the ids: the same for every kind of handle."""


def enqueue(handle: Any, **message: Unpack[MessageRequest]) -> UUID:
    """Ask for one e-mail in the transaction of ``handle``, and return the message's id.

    One INSERT on the connection that is already there. Never commits, never flushes a session's pending objects, never
    opens a connection, never talks to the broker. Commit, and the mail can't be lost; roll back, and it was never asked
    for. On a connection in autocommit it is committed when the call returns.

    ``handle`` is a SQLAlchemy ``Session`` or ``Connection``, a psycopg (3 or 2) connection, or a Django connection, to
    the PostgreSQL database that holds ``email_messages``. The keyword arguments:

    ``to``, ``cc``, ``bcc``
        An address or a list of them, as text (``ayse@example.com``, ``Ayşe <ayse@example.com>``) or as (name, address).
        Kept as they are now. One at least must be there.
    ``template``, ``parameters``, ``schema_version=1``, ``locale``
        The template's name, JSON values for it, which shape they have, and the reader's language (``tr-TR``). The
        template is rendered when the mail is sent, not now.
    ``sender``, ``reply_to``, ``headers``, ``attachments``
        ``headers`` are further fields by name; ``attachments`` is a list of ``Attachment``.
    ``priority=Priority.NORMAL``, ``send_at``, ``expires_at``
        Not before ``send_at``, worthless after ``expires_at``: aware datetimes.
    ``ordering_key``
        Messages with one key are sent in the order of their commits. The key's advisory lock is held until the
        transaction ends.
    ``idempotency_key``
        If another message has it, nothing is written and that message's id is returned. Unique while the row lives,
        that is until retention removes it.
    ``tags``, ``entity``
        For people who look for it later: labels, and the business entity it belongs to, as (type, id).

    Raises ``InvalidRequestError`` naming the field, before anything is written. The driver's own errors pass through.
    """
    return _run(handle, _statements([message], single=True))[0]


def enqueue_many(handle: Any, messages: Iterable[MessageRequest]) -> list[UUID]:
    """Ask for many e-mails by one statement; returns their ids in the same order.

    Each element has the keyword arguments of ``enqueue``, whose promises hold for all of them together: a bad one
    refuses all, and the error names it (``messages[3].to[0]``). An empty list does nothing. Meant for thousands at a
    time; the statement's size is the sum of its rows.
    """
    return _run(handle, _statements(messages, single=False))


async def aenqueue(handle: Any, **message: Unpack[MessageRequest]) -> UUID:
    """``enqueue`` on a SQLAlchemy ``AsyncSession`` or ``AsyncConnection``, or a psycopg ``AsyncConnection``."""
    return (await _run_async(handle, _statements([message], single=True)))[0]


async def aenqueue_many(handle: Any, messages: Iterable[MessageRequest]) -> list[UUID]:
    """``enqueue_many`` on the handles of ``aenqueue``."""
    return await _run_async(handle, _statements(messages, single=False))


def _run(handle: Any, statements: _Statements) -> list[UUID]:
    run = runner(handle)
    try:
        sql, value = next(statements)
        while True:
            sql, value = statements.send(run(sql, value))
    except StopIteration as finished:
        ids: list[UUID] = finished.value
        return ids


async def _run_async(handle: Any, statements: _Statements) -> list[UUID]:
    try:
        sql, value = next(statements)
        while True:
            sql, value = statements.send(await run_async(handle, sql, value))
    except StopIteration as finished:
        ids: list[UUID] = finished.value
        return ids


def _checked(messages: Iterable[MessageRequest], *, single: bool) -> list[dict[str, Any]]:
    rows = []
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise InvalidRequestError(
                f"messages[{index}]",
                f"{type(message).__name__} is not a dict",
                "Pass the arguments of enqueue as a dict",
            )
        try:
            rows.append(checked_row(message))
        except InvalidRequestError as error:
            if single:
                raise
            raise InvalidRequestError(f"messages[{index}].{error.field}", error.problem, error.advice) from None
    return rows


def _statements(messages: Iterable[MessageRequest], *, single: bool) -> _Statements:
    rows = _checked(messages, single=single)
    if not rows:
        return []
    keyed = any("idempotency_key" in row for row in rows)
    sql = _INSERT[keyed, any("ordering_key" in row for row in rows)]
    if not keyed:
        yield sql, rows_json(rows)
        return [UUID(row["id"]) for row in rows]
    ids: list[UUID | None] = [None] * len(rows)
    for _ in range(_ROUNDS):
        missing = [place for place, id_ in enumerate(ids) if id_ is None]
        for n, id_, _rings in (yield sql, rows_json([rows[place] for place in missing])):
            ids[missing[n]] = id_ and UUID(id_)
        missing = [place for place in missing if ids[place] is None]
        if missing:
            # Committed by somebody else while the INSERT ran: only a new statement can see it.
            found = yield _EARLIER, json.dumps([rows[place]["idempotency_key"] for place in missing])
            earlier = {key: UUID(id_) for key, id_ in found}
            for place in missing:
                ids[place] = earlier.get(rows[place]["idempotency_key"])
        if None not in ids:
            return [id_ for id_ in ids if id_ is not None]
    raise OutboxMailError(
        f"idempotency_key: {rows[ids.index(None)]['idempotency_key']!r} was taken and given up by others "
        "again and again. Roll back and try again."
    )
