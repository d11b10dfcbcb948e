"""The SQL of every transition, derived from the table in ``status.py``; the only code that writes a status.

Each function is one statement on a psycopg connection in autocommit: a transition is a transaction of its own. Time is
the database's. Each says what changed; that nothing did is a normal answer, never an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple, cast
from uuid import UUID

from psycopg import Connection
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from outbox_mail.outbox import status
from outbox_mail.outbox.columns import STATUS_STAMPS
from outbox_mail.outbox.status import Status, Transition

MAX_ERROR_MESSAGE_CHARS: Final = 1000


@dataclass(frozen=True, slots=True)
class Outbox:
    """One channel's tables. ``kind`` is the column that policies and holds go by (a mail's template).

    ``claimed`` lists what a claim returns, by name: a migration that adds a column breaks a prepared ``*``. ``columns``
    are all that ``table`` and ``archive`` share, in any order.
    """

    table: str
    attempts: str
    kind: str
    claimed: tuple[str, ...]
    archive: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt failed, as the row and the table of failed attempts keep it."""

    error_class: str
    code: str
    message: str
    provider: str | None = None
    outcomes: Mapping[str, Any] | None = None
    """Per address, merged into the row's; None leaves the row's as they are."""

    def parameters(self) -> dict[str, Any]:
        """The statement's parameters; the text is cut, and freed of what PostgreSQL can't store."""
        return {
            "error_class": self.error_class,
            "error_code": self.code[:100],
            "error_message": _storable(self.message),
            "provider": self.provider,
            "outcomes": Jsonb(self.outcomes) if self.outcomes else None,
        }


class DeadLetter(NamedTuple):
    """A row that ended FAILED, as far as a signal tells of it."""

    id: UUID
    kind: str
    error_code: str
    attempts: int


class Reaped(NamedTuple):
    """The rows of one batch whose lease had run out, by what became of them."""

    released: int
    given_up: list[DeadLetter]

    @property
    def total(self) -> int:
        """How many rows the batch had."""
        return self.released + len(self.given_up)


def _storable(text: str) -> str:
    cleaned = text.replace("\0", "").encode("utf-8", "replace").decode("utf-8")
    return cleaned[:MAX_ERROR_MESSAGE_CHARS]


def _guard(transition: Transition) -> str:
    """The WHERE that makes the move legal: the sources, and the claim's number where only its holder may make it."""
    sources = sorted(transition.sources)
    condition = (
        f"m.status = '{sources[0]}'"
        if len(sources) == 1
        else f"m.status IN ({', '.join(repr(source.value) for source in sources)})"
    )
    return f"{condition} AND m.claims = %(claims)s" if transition.needs_claim else condition


def _set(transition: Transition) -> str:
    """The SET that every move shares: the status, its own time stamp, no other's, and the attempt it used up."""
    stamps = [
        f"{stamp} = {'now()' if owner is transition.target else 'NULL'}" for owner, stamp in STATUS_STAMPS.items()
    ]
    counted = ["attempt_count = m.attempt_count + 1"] if transition.counts_attempt else []
    freed = ["hold_id = NULL"] if transition.target is not Status.PENDING else []
    return ", ".join([f"status = '{transition.target}'", *stamps, *counted, *freed])


def hold_matches(outbox: Outbox) -> str:
    """The condition under which hold ``h`` covers row ``m``; needs the parameter ``provider``."""
    return f"""(h.until IS NULL OR h.until > now()) AND CASE h.scope
        WHEN 'all' THEN true
        WHEN 'template' THEN h.value = m.{outbox.kind}
        WHEN 'tag' THEN h.value = ANY (m.tags)
        WHEN 'ordering_key' THEN h.value = m.ordering_key
        WHEN 'provider' THEN h.value = %(provider)s
        ELSE false END"""


def is_head(outbox: Outbox) -> str:
    """The condition under which row ``m`` is in turn: unordered, or no earlier one of its key is unfinished."""
    return f"""(m.ordering_key IS NULL OR NOT EXISTS (
        SELECT FROM {outbox.table} e
        WHERE e.ordering_key = m.ordering_key AND e.ordering_seq < m.ordering_seq
          AND e.ordering_key IS NOT NULL AND e.status IN ('{Status.PENDING}', '{Status.SENDING}')))"""


@cache
def _claim_sql(outbox: Outbox) -> str:
    return f"""
        UPDATE {outbox.table} m
        SET {_set(status.CLAIM)}, claims = m.claims + 1, at_most_once = m.{outbox.kind} = ANY (%(at_most_once)s)
        WHERE m.id = %(id)s AND {_guard(status.CLAIM)} AND m.due_at <= now() AND m.hold_id IS NULL
          AND (m.expires_at IS NULL OR m.expires_at > now())
          AND {is_head(outbox)}
          AND NOT EXISTS (SELECT FROM outbox_holds h WHERE {hold_matches(outbox)})
        RETURNING {", ".join(f'm."{column}"' for column in outbox.claimed)},
          extract(epoch FROM now() - m.due_at)::float8 AS waited_seconds"""


def claim(
    connection: Connection[Any], outbox: Outbox, id_: UUID, *, provider: str, at_most_once: Sequence[str] = ()
) -> dict[str, Any] | None:
    """Take the row if it is PENDING, due, in turn, not expired and not held; None when it is not.

    Raises its ``claims``, which the holder must show for every later move. Kinds listed in ``at_most_once`` are marked
    so on the row, for the reaper. Waits for a row lock held by another (the relay marking it), then decides.
    """
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(
            _claim_sql(outbox), {"id": id_, "provider": provider, "at_most_once": list(at_most_once)}
        ).fetchone()


@cache
def _withdraw_sql(outbox: Outbox) -> str:
    return f"""
        WITH looked AS (SELECT m.status FROM {outbox.table} m WHERE m.id = %(id)s),
        unpublished AS (
            UPDATE {outbox.table} m
            SET published_at = NULL, hold_id = coalesce(m.hold_id, (
                SELECT h.id FROM outbox_holds h WHERE {hold_matches(outbox)} ORDER BY h.id LIMIT 1))
            WHERE m.id = %(id)s AND m.status = '{Status.PENDING}'
            RETURNING CASE
                WHEN m.expires_at <= now() THEN 'expired'
                WHEN m.hold_id IS NOT NULL THEN 'held'
                WHEN m.due_at > now() THEN 'not_due'
                WHEN m.ordering_key IS NOT NULL THEN 'out_of_turn'
                ELSE 'free' END AS reason)
        SELECT coalesce(
            (SELECT reason FROM unpublished),
            (SELECT CASE status WHEN '{Status.SENDING}' THEN 'taken' WHEN '{Status.PENDING}' THEN 'free'
                ELSE 'finished' END FROM looked),
            'gone')"""


def withdraw(connection: Connection[Any], outbox: Outbox, id_: UUID, *, provider: str) -> str:
    """After a claim that won nothing: say why, and give the hint back when the row still waits.

    ``finished``, ``taken`` and ``gone`` change nothing. ``not_due``, ``out_of_turn``, ``free``, ``held``, ``expired``
    make the row not published, so that the relay looks at it again in its time; ``held`` parks it under its hold, too.
    """
    row = connection.execute(_withdraw_sql(outbox), {"id": id_, "provider": provider}).fetchone()
    return cast("str", row[0]) if row else "gone"


@cache
def _accept_sql(outbox: Outbox) -> str:
    return f"""
        UPDATE {outbox.table} m
        SET {_set(status.ACCEPT)}, provider = %(provider)s, provider_message_id = %(provider_message_id)s,
            error_code = %(error_code)s, error_message = %(error_message)s,
            outcomes = CASE WHEN %(outcomes)s::jsonb IS NULL THEN m.outcomes
                ELSE coalesce(m.outcomes, '{{}}'::jsonb) || %(outcomes)s::jsonb END
        WHERE m.id = %(id)s AND {_guard(status.ACCEPT)}"""


def accept(
    connection: Connection[Any],
    outbox: Outbox,
    id_: UUID,
    *,
    provider: str,
    provider_message_id: str | None,
    outcomes: Mapping[str, Any] | None = None,
    note: tuple[str, str] | None = None,
) -> bool:
    """Record that the provider accepted it, whoever holds the row now. False: it was SENT already, or is gone.

    ``outcomes`` are given when not every address was accepted; ``note`` is then an error code and text to keep.
    """
    code, text = note or (None, None)
    parameters = {
        "id": id_,
        "provider": provider,
        "provider_message_id": _storable(provider_message_id)[:255] if provider_message_id else None,
        "outcomes": Jsonb(outcomes) if outcomes else None,
        "error_code": code,
        "error_message": _storable(text) if text else None,
    }
    return connection.execute(_accept_sql(outbox), parameters).rowcount == 1


def _recorded(outbox: Outbox, update: str) -> str:
    """``update`` with its failed attempt written down, in one statement."""
    return f"""
        WITH changed AS ({update} RETURNING m.id, m.claims)
        INSERT INTO {outbox.attempts} (message_id, claim, error_class, error_code, error_message, provider)
        SELECT id, claims, %(error_class)s, %(error_code)s, %(error_message)s, %(provider)s FROM changed"""


_FAILURE_COLUMNS: Final = """error_code = %(error_code)s, error_message = %(error_message)s,
            provider = coalesce(%(provider)s, m.provider),
            outcomes = CASE WHEN %(outcomes)s::jsonb IS NULL THEN m.outcomes
                ELSE coalesce(m.outcomes, '{}'::jsonb) || %(outcomes)s::jsonb END"""


@cache
def _retry_sql(outbox: Outbox) -> str:
    return _recorded(
        outbox,
        f"""UPDATE {outbox.table} m
        SET {_set(status.RETRY)}, {_FAILURE_COLUMNS},
            due_at = now() + make_interval(secs => %(delay_seconds)s),
            published_at = CASE WHEN %(countdown)s THEN now() END
        WHERE m.id = %(id)s AND {_guard(status.RETRY)}""",
    )


def retry(
    connection: Connection[Any],
    outbox: Outbox,
    id_: UUID,
    claims: int,
    failure: Failure,
    *,
    delay_seconds: float,
    countdown: bool,
) -> bool:
    """Back to PENDING, due in ``delay_seconds``, one attempt used up. False: the claim is no longer the caller's.

    ``countdown``: the caller sends the id with a countdown, so the relay need not. If it then can't, it calls
    ``unpublish``; a countdown that is lost without a word is found by the relay's republishing.
    """
    parameters = {
        **failure.parameters(),
        "id": id_,
        "claims": claims,
        "delay_seconds": delay_seconds,
        "countdown": countdown,
    }
    return connection.execute(_retry_sql(outbox), parameters).rowcount == 1


def unpublish(connection: Connection[Any], outbox: Outbox, ids: Sequence[UUID]) -> int:
    """Take back that ids are out, because the broker did not take them: the relay publishes them when due."""
    return connection.execute(
        f"""UPDATE {outbox.table} SET published_at = NULL
            WHERE id = ANY (%(ids)s) AND status = '{Status.PENDING}' AND published_at IS NOT NULL""",
        {"ids": list(ids)},
    ).rowcount


@cache
def _fail_sql(outbox: Outbox) -> str:
    return _recorded(
        outbox,
        f"""UPDATE {outbox.table} m SET {_set(status.FAIL)}, {_FAILURE_COLUMNS}
        WHERE m.id = %(id)s AND {_guard(status.FAIL)}""",
    )


def fail(connection: Connection[Any], outbox: Outbox, id_: UUID, claims: int, failure: Failure) -> bool:
    """Give up for good: FAILED with its reason. False: the claim is no longer the caller's."""
    parameters = {**failure.parameters(), "id": id_, "claims": claims}
    return connection.execute(_fail_sql(outbox), parameters).rowcount == 1


@cache
def _release_sql(outbox: Outbox) -> str:
    return f"""
        UPDATE {outbox.table} m
        SET {_set(status.RELEASE)}, {_FAILURE_COLUMNS}, published_at = NULL,
            due_at = greatest(m.due_at, now() + make_interval(secs => %(delay_seconds)s))
        WHERE m.id = %(id)s AND {_guard(status.RELEASE)}"""


def release(
    connection: Connection[Any], outbox: Outbox, id_: UUID, claims: int, failure: Failure, *, delay_seconds: float
) -> bool:
    """Give a claimed row back without using up an attempt. False: the claim is no longer the caller's."""
    parameters = {**failure.parameters(), "id": id_, "claims": claims, "delay_seconds": delay_seconds}
    parameters.pop("error_class")
    return connection.execute(_release_sql(outbox), parameters).rowcount == 1


@cache
def _reap_sql(outbox: Outbox) -> str:
    return f"""
        WITH stuck AS (
            SELECT m.id, m.at_most_once,
                m.at_most_once OR m.reap_count + 1 >= %(max_reaps)s AS hopeless,
                CASE WHEN m.at_most_once THEN 'outcome_unknown'
                    WHEN m.reap_count + 1 >= %(max_reaps)s THEN 'poison' ELSE 'lease_expired' END AS code
            FROM {outbox.table} m
            WHERE {_guard(status.REAP)} AND m.locked_at < now() - make_interval(secs => %(lease_seconds)s)
            ORDER BY m.locked_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED),
        released AS (
            UPDATE {outbox.table} m
            SET {_set(status.REAP)}, reap_count = m.reap_count + 1, published_at = NULL,
                error_code = stuck.code, error_message = %(message)s
            FROM stuck WHERE m.id = stuck.id AND NOT stuck.hopeless AND {_guard(status.REAP)}
            RETURNING m.id, m.claims, stuck.code),
        given_up AS (
            UPDATE {outbox.table} m
            SET {_set(status.GIVE_UP)}, reap_count = m.reap_count + 1,
                error_code = stuck.code, error_message = %(message)s
            FROM stuck WHERE m.id = stuck.id AND stuck.hopeless AND {_guard(status.GIVE_UP)}
            RETURNING m.id, m.claims, stuck.code, m.{outbox.kind} AS kind, m.attempt_count),
        recorded AS (
            INSERT INTO {outbox.attempts} (message_id, claim, error_class, error_code, error_message)
            SELECT id, claims, 'unknown', code, %(message)s FROM released
            UNION ALL SELECT id, claims, 'unknown', code, %(message)s FROM given_up)
        SELECT NULL AS id, NULL AS kind, NULL AS code, NULL AS attempt_count FROM released
        UNION ALL SELECT id, kind, code, attempt_count FROM given_up"""


def reap(connection: Connection[Any], outbox: Outbox, *, lease_seconds: float, max_reaps: int, limit: int) -> Reaped:
    """Free up to ``limit`` rows whose lease ran out, the oldest first; rows locked by another reaper are left to it.

    At-most-once rows end FAILED ``outcome_unknown``; rows whose lease ran out for the ``max_reaps``-th time end FAILED
    ``poison``; the rest go back to PENDING. No attempt is counted: nobody knows whether there was one.
    """
    rows = connection.execute(
        _reap_sql(outbox),
        {
            "lease_seconds": lease_seconds,
            "max_reaps": max_reaps,
            "limit": limit,
            "message": f"no word from the worker within the lease of {lease_seconds:g} s",
        },
    ).fetchall()
    given_up = [DeadLetter(*row) for row in rows if row[0] is not None]
    return Reaped(len(rows) - len(given_up), given_up)


@cache
def _expire_sql(outbox: Outbox, condition: str) -> str:
    return f"""
        UPDATE {outbox.table} m
        SET {_set(status.EXPIRE)}, error_code = 'expired', error_message = 'not sent before expires_at'
        FROM (SELECT m.id FROM {outbox.table} m
            WHERE {_guard(status.EXPIRE)} AND m.expires_at IS NOT NULL AND m.expires_at <= now() AND {condition}
            LIMIT %(limit)s FOR UPDATE SKIP LOCKED) late
        WHERE m.id = late.id AND {_guard(status.EXPIRE)}
        RETURNING m.id, m.{outbox.kind}, m.attempt_count"""


def expire(
    connection: Connection[Any], outbox: Outbox, *, limit: int = 500, id_: UUID | None = None
) -> list[tuple[UUID, str, int]]:
    """End rows that are worthless by now, one or up to ``limit``: FAILED ``expired``.

    Returns id, kind and failed attempts of each. Rows locked by somebody are left for the next call.
    """
    condition = "true" if id_ is None else "m.id = %(id)s"
    return connection.execute(_expire_sql(outbox, condition), {"limit": limit, "id": id_}).fetchall()


def cancel(connection: Connection[Any], outbox: Outbox, id_: UUID, *, reason: str) -> bool:
    """End a PENDING row on a person's word: FAILED ``cancelled``. False: it is not PENDING."""
    return (
        connection.execute(
            f"""UPDATE {outbox.table} m
                SET {_set(status.CANCEL)}, error_code = 'cancelled', error_message = %(reason)s
                WHERE m.id = %(id)s AND {_guard(status.CANCEL)}""",
            {"id": id_, "reason": _storable(reason)},
        ).rowcount
        == 1
    )


def requeue(connection: Connection[Any], outbox: Outbox, id_: UUID, *, reason: str) -> bool:
    """Give a FAILED row a fresh set of attempts, due now. False: it is not FAILED.

    Addresses that were accepted stay settled; those that were refused are tried again. An expiry that has passed is
    lifted. A row with an ordering key goes when its turn by number comes, ahead of its later ones.
    """
    return (
        connection.execute(
            f"""UPDATE {outbox.table} m
                SET {_set(status.REQUEUE)}, attempt_count = 0, reap_count = 0, published_at = NULL, due_at = now(),
                    expires_at = CASE WHEN m.expires_at > now() THEN m.expires_at END,
                    error_message = %(reason)s,
                    outcomes = (SELECT jsonb_object_agg(o.key, o.value) FROM jsonb_each(m.outcomes) o
                        WHERE o.value ->> 'state' = 'accepted')
                WHERE m.id = %(id)s AND {_guard(status.REQUEUE)}""",
            {"id": id_, "reason": _storable(reason)},
        ).rowcount
        == 1
    )
