"""Finding messages and looking at one of them."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

import psycopg
from psycopg import Connection

from outbox_mail.errors import NotFoundError, UsageError
from outbox_mail.mail.outbox import MAIL
from outbox_mail.operations.filters import Filter
from outbox_mail.operations.rows import dict_cursor
from outbox_mail.outbox.bounds import bounded
from outbox_mail.outbox.status import Status

MAX_PAGE: Final = 1000
TIMEOUT_SECONDS: Final = 15.0
HIDDEN: Final = "(hidden)"

_LISTED: Final = (
    "id",
    "status",
    "template",
    "to",
    "priority",
    "created_at",
    "due_at",
    "expires_at",
    "published_at",
    "locked_at",
    "sent_at",
    "failed_at",
    "attempt_count",
    "error_code",
    "hold_id",
    "entity_type",
    "entity_id",
    "ordering_key",
    "tags",
)
_COLUMNS: Final = ", ".join(f'm."{name}"' for name in _LISTED)


@dataclass(frozen=True, slots=True)
class _Order:
    """What a list goes by. ``branches``: conditions that split it so that each part is read in order by one index."""

    column: str
    descending: bool
    branches: tuple[str, ...] = ("true",)


_BY_STATUS: Final = {
    Status.PENDING: _Order(
        "due_at",
        descending=False,
        branches=(
            *(f"m.published_at IS NULL AND m.hold_id IS NULL AND m.priority = {number}" for number in (1, 2, 3)),
            "m.published_at IS NOT NULL",
            "m.hold_id IS NOT NULL AND m.published_at IS NULL",
        ),
    ),
    Status.SENDING: _Order("locked_at", descending=False),
    Status.SENT: _Order("sent_at", descending=True),
    Status.FAILED: _Order("failed_at", descending=True),
}
_BY_KEY: Final = _Order("created_at", descending=True)
_BY_ID: Final = _Order("id", descending=True)


@dataclass(frozen=True, slots=True)
class Page:
    """Some messages, and where the next page begins; ``next`` is None on the last."""

    messages: Sequence[Mapping[str, Any]]
    next: str | None


def list_messages(
    connection: Connection[Any], wanted: Filter | None = None, *, limit: int = 50, after: str | None = None
) -> Page:
    """A page of messages, without their parameters.

    PENDING come by when they are due, SENDING by who was claimed first, SENT and FAILED by the latest; without a status
    by id, which is by age for those that ``enqueue`` made. ``after`` is the ``next`` of the page before: pages hang
    together however many rows came in between. Locks nothing.

    Raises ``UsageError`` for a malformed argument, ``OutboxMailError`` when the database needs longer than 15 s: no
    index serves a template, tag, address or error code, so that in a large table they need a status beside them.
    """
    wanted = wanted or Filter()
    if not 1 <= limit <= MAX_PAGE:
        raise UsageError("limit", f"{limit} is out of bounds", f"Give 1 to {MAX_PAGE}")
    order = _order(wanted)
    conditions, parameters = wanted.conditions()
    if after is not None:
        place, id_ = _read_cursor(after, order)
        conditions.append(_beyond(order))
        parameters |= {"place": place, "cursor_id": id_}
    try:
        with (
            bounded(connection, TIMEOUT_SECONDS, advice="Name a status, or a later --since"),
            dict_cursor(connection) as cursor,
        ):
            rows = cursor.execute(_page_sql(order, conditions), parameters | {"limit": limit + 1}).fetchall()
    except psycopg.DataError:
        if after is None:
            raise
        raise _not_a_cursor() from None
    more = _write_cursor(order, rows[limit - 1]) if len(rows) > limit else None
    return Page([{name: row[name] for name in _LISTED} for row in rows[:limit]], more)


def show(connection: Connection[Any], id_: UUID, *, parameters: bool = False) -> dict[str, Any]:
    """Everything of one message: its columns, ``attempts`` (the failed ones, oldest first) and ``hold``.

    Looks into the archive, too (``archived_at`` is there then). Without ``parameters`` only their names are told: they
    may hold what support staff need not see. Raises ``NotFoundError``.
    """
    with dict_cursor(connection) as cursor:
        row = (
            cursor.execute(f"SELECT * FROM {MAIL.table} WHERE id = %s", [id_]).fetchone()
            or cursor.execute(f"SELECT * FROM {MAIL.table}_archive WHERE id = %s", [id_]).fetchone()
        )
        if row is None:
            raise NotFoundError(f"id: there is no message {id_}. It may have been removed by retention")
        attempts = cursor.execute(
            f"""SELECT claim, error_class, error_code, error_message, provider, failed_at
                FROM {MAIL.attempts} WHERE message_id = %s ORDER BY id""",
            [id_],
        ).fetchall()
        hold = cursor.execute("SELECT * FROM outbox_holds WHERE id = %s", [row["hold_id"]]).fetchone()
    if not parameters:
        row["parameters"] = dict.fromkeys(row["parameters"], HIDDEN) if isinstance(row["parameters"], dict) else HIDDEN
    return {**row, "attempts": attempts, "hold": hold}


def _order(wanted: Filter) -> _Order:
    if wanted.entity is not None:
        return _BY_KEY
    return _BY_STATUS[Status(wanted.status)] if wanted.status else _BY_ID


def oldest_first_sql(status: Status, conditions: Sequence[str]) -> str:
    """SELECTs the ids of up to ``%(limit)s`` messages in ``status``, those first that came into it first."""
    order = replace(_BY_STATUS[status], descending=False)
    return f"SELECT id FROM ({_page_sql(order, conditions)}) oldest"


def _page_sql(order: _Order, conditions: Sequence[str]) -> str:
    way = "DESC" if order.descending else "ASC"
    columns = f"{_COLUMNS}, m.{order.column}::text AS place"
    parts = (
        f"""(SELECT {columns} FROM {MAIL.table} m WHERE {" AND ".join([branch, *conditions])}
            ORDER BY m.{order.column} {way}, m.id {way} LIMIT %(limit)s)"""
        for branch in order.branches
    )
    return f"""SELECT * FROM ({" UNION ALL ".join(parts)}) page
        ORDER BY {order.column} {way}, id {way} LIMIT %(limit)s"""


def _beyond(order: _Order) -> str:
    sign = "<" if order.descending else ">"
    if order.column == "id":
        return f"m.id {sign} %(cursor_id)s"
    # The first condition is what an index on the column alone can use.
    return (
        f"m.{order.column} {sign}= %(place)s::timestamptz"
        f" AND (m.{order.column}, m.id) {sign} (%(place)s::timestamptz, %(cursor_id)s)"
    )


def _write_cursor(order: _Order, row: Mapping[str, Any]) -> str:
    # PostgreSQL's own text of a time, because not all of its times exist in Python.
    written = json.dumps([order.column, row["place"], str(row["id"])], separators=(",", ":"))
    return base64.urlsafe_b64encode(written.encode()).decode().rstrip("=")


def _read_cursor(text: str, order: _Order) -> tuple[str, UUID]:
    try:
        padded = text + "=" * (-len(text) % 4)
        column, place, id_ = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        if column == order.column and isinstance(place, str) and place.isascii() and "\0" not in place:
            return place, UUID(id_)
    except (ValueError, TypeError, AttributeError, RecursionError):
        pass
    raise _not_a_cursor()


def _not_a_cursor() -> UsageError:
    return UsageError("after", "it is not the next of a page with the same filters", "Begin again without it")
