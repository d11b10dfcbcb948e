"""The INSERT behind enqueue: one statement for one message or many, the same through every driver.

The rows travel as one JSON parameter, so that neither the driver's array and JSON adaptation nor the number of rows
matters. Ids are made by the caller. The statement also rings the relay's doorbell, but only while the relay sleeps:
NOTIFY takes a lock that every commit in the database shares.
"""

from __future__ import annotations

from typing import Final

from outbox_mail.names import DOORBELL_CHANNEL
from outbox_mail.outbox.columns import TURN_SEQUENCE

# Column → type. What is absent from a row's JSON falls back to ``DEFAULTS``, else to NULL.
_COLUMNS: Final = {
    "id": "uuid",
    "to": "text[]",
    "cc": "text[]",
    "bcc": "text[]",
    "template": "text",
    "parameters": "jsonb",
    "schema_version": "smallint",
    "attachments": "jsonb",
    "priority": "smallint",
    "send_at": "timestamptz",
    "expires_at": "timestamptz",
    "locale": "text",
    "sender": "text",
    "reply_to": "text[]",
    "headers": "jsonb",
    "tags": "text[]",
    "entity_type": "text",
    "entity_id": "text",
    "ordering_key": "text",
    "idempotency_key": "text",
    "trace_context": "jsonb",
}
_DEFAULTS: Final = {
    "cc": "'{}'",
    "bcc": "'{}'",
    "reply_to": "'{}'",
    "tags": "'{}'",
    "attachments": "'[]'",
}
_ORDERING_LOCK_SEED: Final = 7_035_611
"""Keeps the advisory locks of ordering keys apart from those of other software that hashes texts."""

_DECLARED: Final = ", ".join(f'"{name}" {kind}' for name, kind in _COLUMNS.items())
_NAMES: Final = ", ".join(f'"{name}"' for name in _COLUMNS)
_VALUES: Final = ", ".join(
    f'coalesce(r."{name}", {_DEFAULTS[name]})' if name in _DEFAULTS else f'r."{name}"' for name in _COLUMNS
)
_RING: Final = f"(SELECT count(pg_notify('{DOORBELL_CHANNEL}', '')) FROM outbox_relay_state WHERE asleep AND {{due}})"


def insert_sql(parameter: str, *, keyed: bool, ordered: bool) -> str:
    """The statement, with ``parameter`` as the driver writes the parameter that holds the rows' JSON array.

    Each element of the array has the columns' names, and ``n``, its place. ``keyed``: some row has an idempotency key;
    the statement then returns for each row ``n`` and the id of the message that stands for it, NULL when that one was
    committed by somebody else while this statement ran. ``ordered``: some row has an ordering key; its advisory lock
    is taken until the transaction ends, in the keys' order, and only then the sequence is drawn, so that numbers
    follow commits.
    """
    # hashtextextended, an advisory lock and nextval in this order: the join with ``turns`` is what makes them so.
    turns = (
        f"""turns AS MATERIALIZED (SELECT count(*) AS keys FROM (
            SELECT pg_advisory_xact_lock(hashtextextended(k.ordering_key, {_ORDERING_LOCK_SEED})) FROM (
                SELECT DISTINCT ordering_key COLLATE "C" AS ordering_key FROM asked
                WHERE ordering_key IS NOT NULL ORDER BY 1) k
            OFFSET 0) locked),"""
        if ordered
        else ""
    )
    seq = f"CASE WHEN r.ordering_key IS NOT NULL THEN nextval('{TURN_SEQUENCE}') END" if ordered else "NULL"
    source = "(SELECT asked.* FROM turns CROSS JOIN asked ORDER BY asked.n) r" if ordered else "asked r"
    conflict = (
        "ON CONFLICT (idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING RETURNING id, idempotency_key"
        if keyed
        else "RETURNING id"
    )
    ring = _RING.format(due="EXISTS (SELECT FROM asked WHERE send_at IS NULL OR send_at <= now())")
    result = (
        f"""SELECT asked.n, coalesce(by_id.id, by_key.id, earlier.id)::text, {ring}
        FROM asked
        LEFT JOIN made by_id ON by_id.id = asked.id
        LEFT JOIN made by_key ON by_key.idempotency_key = asked.idempotency_key
        LEFT JOIN email_messages earlier
            ON earlier.idempotency_key = asked.idempotency_key AND earlier.idempotency_key IS NOT NULL"""
        if keyed
        else f"SELECT {ring}"
    )
    return f"""
        WITH asked AS MATERIALIZED (
            SELECT * FROM json_to_recordset(CAST({parameter} AS json)) AS x(n int, {_DECLARED})),
        {turns}
        made AS (
            INSERT INTO email_messages ({_NAMES}, due_at, ordering_seq)
            SELECT {_VALUES}, greatest(r.send_at, now()), {seq} FROM {source}
            {conflict})
        {result}"""


def earlier_sql(parameter: str) -> str:
    """Key and id of the messages that hold the idempotency keys in the JSON array ``parameter``."""
    return f"""
        SELECT idempotency_key, id::text FROM email_messages
        WHERE idempotency_key IN (SELECT * FROM json_array_elements_text(CAST({parameter} AS json)))"""
