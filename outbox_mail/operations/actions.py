"""What a person decides about messages: send again, don't send, seen and left. Who and why stay on the row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

from psycopg import Connection

from outbox_mail.errors import NotFoundError, RefusedError, UsageError
from outbox_mail.mail.outbox import MAIL
from outbox_mail.operations.filters import Filter, storable
from outbox_mail.operations.messages import TIMEOUT_SECONDS, oldest_first_sql
from outbox_mail.outbox import transitions
from outbox_mail.outbox.bounds import bounded
from outbox_mail.outbox.status import Status

DISCARDED: Final = "discarded"
MAX_AT_ONCE: Final = 10_000
MAX_NOTE_CHARS: Final = 400


@dataclass(frozen=True, slots=True)
class Action:
    """One thing that can be done to a message in ``status``; ``done`` is the word for it afterwards."""

    name: str
    done: str
    status: Status
    change: Callable[[Connection[Any], UUID, str], bool]


def _requeue(connection: Connection[Any], id_: UUID, note: str) -> bool:
    return transitions.requeue(connection, MAIL, id_, reason=note)


def _cancel(connection: Connection[Any], id_: UUID, note: str) -> bool:
    return transitions.cancel(connection, MAIL, id_, reason=note)


def _discard(connection: Connection[Any], id_: UUID, note: str) -> bool:
    # Stays FAILED: another status would be a fifth. What it failed of is kept behind the note and in the attempts.
    return (
        connection.execute(
            f"""UPDATE {MAIL.table} SET error_code = '{DISCARDED}', error_message = left(
                    concat(%(note)s::text, ' (was ', error_code, ': ', error_message, ')'),
                    {transitions.MAX_ERROR_MESSAGE_CHARS})
                WHERE id = %(id)s AND status = '{Status.FAILED}' AND error_code <> '{DISCARDED}'""",
            {"id": id_, "note": note},
        ).rowcount
        == 1
    )


REQUEUE: Final = Action("requeue", "requeued", Status.FAILED, _requeue)
"""FAILED → PENDING, due now, with a fresh set of attempts; accepted addresses stay settled."""
CANCEL: Final = Action("cancel", "cancelled", Status.PENDING, _cancel)
"""PENDING → FAILED ``cancelled``. What a worker has claimed can't be called back."""
DISCARD: Final = Action("discard", "discarded", Status.FAILED, _discard)
"""FAILED stays FAILED, coded ``discarded``: seen, and not to be sent. It can still be requeued until retention."""


def act(connection: Connection[Any], action: Action, id_: UUID, *, by: str, reason: str) -> None:
    """Do ``action`` to one message, in a transaction of its own.

    Raises ``NotFoundError``, and ``RefusedError`` when the message is in another status.
    """
    if action.change(connection, id_, _note(action, by, reason)):
        return
    row = connection.execute(f"SELECT status, error_code FROM {MAIL.table} WHERE id = %s", [id_]).fetchone()
    if row is None:
        raise NotFoundError(f"id: there is no message {id_}. It may have been removed by retention")
    found = f"{row[0]} {row[1]}" if row[1] and row[0] == Status.FAILED else row[0]
    raise RefusedError(
        f"status: the message is {found}, only {action.status} can be {action.done}. Look at it: outbox-mail show {id_}"
    )


def find(connection: Connection[Any], action: Action, wanted: Filter, *, limit: int) -> list[UUID]:
    """The ids of up to ``limit`` messages that ``action`` can be done to now, the oldest first.

    Raises ``UsageError`` for a filter on another status, ``OutboxMailError`` when the database needs too long.
    """
    if not 1 <= limit <= MAX_AT_ONCE:
        raise UsageError("limit", f"{limit} is out of bounds", f"Give 1 to {MAX_AT_ONCE}")
    if wanted.status not in {None, action.status}:
        raise UsageError("status", f"only {action.status} messages can be {action.done}", "Leave the status out")
    conditions, parameters = replace(wanted, status=action.status).conditions()
    if action is DISCARD:
        conditions.append(f"m.error_code <> '{DISCARDED}'")
    with bounded(connection, TIMEOUT_SECONDS, advice="Narrow the filter"):
        rows = connection.execute(oldest_first_sql(action.status, conditions), parameters | {"limit": limit}).fetchall()
    return [row[0] for row in rows]


def act_on_all(connection: Connection[Any], action: Action, ids: Sequence[UUID], *, by: str, reason: str) -> list[UUID]:
    """Do ``action`` to each message, each in a transaction of its own, and return those that it was done to.

    One that has changed its status meanwhile is left as it is; what was done stays done when the connection breaks.
    """
    note = _note(action, by, reason)
    return [id_ for id_ in ids if action.change(connection, id_, note)]


def _note(action: Action, by: str, reason: str) -> str:
    return f"{action.done} by {who(by)}: {storable('reason', reason.strip(), most=MAX_NOTE_CHARS)}"


def who(by: str) -> str:
    """The name of the person who acts. Raises ``UsageError``."""
    return storable("by", by.strip(), most=100)
