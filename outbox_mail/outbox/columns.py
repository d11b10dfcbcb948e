"""The columns, CHECKs and indexes that make a table an outbox, whatever it carries."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKey,
    Identity,
    Index,
    Integer,
    MetaData,
    SmallInteger,
    Table,
    Text,
    Uuid,
    false,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.schema import SchemaItem

from outbox_mail.names import Priority
from outbox_mail.outbox.status import Status

# Each of these columns is set in exactly one status; transitions.py sets and clears them with it.
STATUS_STAMPS: Final = {
    Status.SENDING: "locked_at",
    Status.SENT: "sent_at",
    Status.FAILED: "failed_at",
}

# Rows of ``outbox_holds`` are numbered from 1.
TURN_HOLD: Final = 0
"""The ``hold_id`` under which the relay parks a due row until the earlier ones of its ordering key are finished."""

# Two updates a message: leave room on the page so that they are heap-only where no index is touched, and let autovacuum
# come by a number of dead rows that does not grow with the table.
STORAGE_PARAMETERS: Final = {
    "fillfactor": "80",
    "autovacuum_vacuum_scale_factor": "0",
    "autovacuum_vacuum_threshold": "5000",
    "autovacuum_vacuum_insert_scale_factor": "0.05",
    "autovacuum_analyze_scale_factor": "0.02",
    "autovacuum_vacuum_cost_delay": "0",
}


def _timestamp(name: str, **options: Any) -> Column[Any]:
    return Column(name, DateTime(timezone=True), **options)


def _within_years(*columns: str) -> str:
    bounds = "BETWEEN '0001-01-02 00:00:00+00' AND '9999-12-30 00:00:00+00'"
    return " AND ".join(f"({column} {bounds} OR {column} IS NULL)" for column in columns)


def _in_status(status: Status) -> Any:
    return text(f"status = '{status}'")


def steering_columns() -> list[SchemaItem]:
    """The columns that say where a message stands, when it may move, and who holds it.

    One meaning each; the page on the table in the reference documentation lists them.
    """
    return [
        Column(
            "id",
            Uuid,
            primary_key=True,
            server_default=func.gen_random_uuid(),
            comment="UUIDv7 from enqueue; the idempotency token downstream",
        ),
        Column("status", Text, nullable=False, server_default=Status.PENDING.value),
        Column("priority", SmallInteger, nullable=False, server_default=str(Priority.NORMAL.value)),
        _timestamp("created_at", nullable=False, server_default=func.now()),
        _timestamp("send_at", comment="what the producer asked for; never changes"),
        _timestamp("due_at", nullable=False, server_default=func.now(), comment="not before: send_at, then the retry"),
        _timestamp("expires_at", comment="worthless after"),
        _timestamp("published_at", comment="when an id last went out to the broker; NULL: not out"),
        _timestamp("locked_at", comment="since when it is claimed"),
        _timestamp("sent_at", comment="when the provider accepted it"),
        _timestamp("failed_at", comment="when it was given up"),
        Column("claims", Integer, nullable=False, server_default="0", comment="fencing: rises with each claim"),
        Column("reap_count", SmallInteger, nullable=False, server_default="0", comment="leases that ran out"),
        Column("attempt_count", SmallInteger, nullable=False, server_default="0", comment="failed attempts"),
        Column("at_most_once", Boolean, nullable=False, server_default=false(), comment="set by the claim"),
        Column("error_code", Text),
        Column("error_message", Text),
        Column("hold_id", BigInteger, comment="parked by this hold, 0: until its turn; NULL: free"),
        Column("ordering_key", Text),
        Column("ordering_seq", BigInteger, comment="place within the ordering key"),
        Column("idempotency_key", Text, comment="unique while the row lives"),
        Column("entity_type", Text, comment="what business entity it belongs to"),
        Column("entity_id", Text),
        Column("tags", ARRAY(Text), nullable=False, server_default=text("'{}'::text[]")),
        Column("trace_context", JSONB, comment="W3C trace context of the producer"),
    ]


def steering_constraints(table: str) -> list[SchemaItem]:
    """CHECKs that make impossible rows impossible."""
    statuses = ", ".join(f"'{status}'" for status in Status)
    checks = {
        "status": f"status IN ({statuses})",
        "priority": f"priority BETWEEN {min(Priority).value} AND {max(Priority).value}",
        **{
            f"{status.lower()}_stamp": f"(status = '{status}') = ({stamp} IS NOT NULL)"
            for status, stamp in STATUS_STAMPS.items()
        },
        "failed_has_code": f"status <> '{Status.FAILED}' OR error_code IS NOT NULL",
        "held_is_pending": f"hold_id IS NULL OR status = '{Status.PENDING}'",
        "counters": "claims >= 0 AND reap_count >= 0 AND attempt_count >= 0",
        "sending_was_claimed": f"status <> '{Status.SENDING}' OR claims > 0",
        # Every language that reads a row must be able to hold these; infinity in due_at or expires_at is meaningful.
        "times": _within_years("created_at", "send_at"),
        "ordering": "(ordering_key IS NULL) = (ordering_seq IS NULL)",
        "entity": "(entity_type IS NULL) = (entity_id IS NULL)",
        "idempotency_key": "char_length(idempotency_key) BETWEEN 1 AND 255",
        "ordering_key": "char_length(ordering_key) BETWEEN 1 AND 255",
    }
    return [CheckConstraint(rule, name=f"{table}_{name}_check") for name, rule in checks.items()]


def steering_indexes(table: str) -> list[SchemaItem]:
    """Partial indexes only: each scan sees the rows it is for, however many others there are.

    A plain index on ``status`` is left out on purpose: with old statistics the planner takes it for everything.
    """
    pending = f"status = '{Status.PENDING}'"
    return [
        Index(
            f"{table}_due",
            "priority",
            "due_at",
            postgresql_where=text(f"{pending} AND published_at IS NULL AND hold_id IS NULL"),
        ),
        Index(
            f"{table}_out",
            "priority",
            "published_at",
            postgresql_include=["due_at"],
            postgresql_where=text(f"{pending} AND published_at IS NOT NULL"),
        ),
        Index(f"{table}_expiring", "expires_at", postgresql_where=text(f"{pending} AND expires_at IS NOT NULL")),
        Index(f"{table}_held", "hold_id", postgresql_where=text("hold_id IS NOT NULL")),
        Index(
            f"{table}_waiting_turn",
            "ordering_key",
            "ordering_seq",
            postgresql_where=text(f"hold_id = {TURN_HOLD}"),
        ),
        Index(f"{table}_locked", "locked_at", postgresql_where=_in_status(Status.SENDING)),
        Index(f"{table}_sent", "sent_at", postgresql_where=_in_status(Status.SENT)),
        Index(f"{table}_failed", "failed_at", postgresql_where=_in_status(Status.FAILED)),
        Index(
            f"{table}_turn",
            "ordering_key",
            "ordering_seq",
            postgresql_where=text(f"ordering_key IS NOT NULL AND status IN ('{Status.PENDING}', '{Status.SENDING}')"),
        ),
        Index(
            f"{table}_idempotency_key",
            "idempotency_key",
            unique=True,
            postgresql_where=text("idempotency_key IS NOT NULL"),
        ),
        Index(
            f"{table}_entity",
            "entity_type",
            "entity_id",
            postgresql_where=text("entity_type IS NOT NULL"),
        ),
    ]


def attempts_table(name: str, outbox: str, metadata: MetaData) -> Table:
    """One row per failed attempt, for diagnosis. Success writes none; the rows go with their message."""
    return Table(
        name,
        metadata,
        Column("id", BigInteger, Identity(always=True), primary_key=True),
        Column("message_id", Uuid, ForeignKey(f"{outbox}.id", ondelete="CASCADE"), nullable=False),
        Column("claim", Integer, nullable=False, comment="which claim of the message made it"),
        Column("error_class", Text, nullable=False),
        Column("error_code", Text, nullable=False),
        Column("error_message", Text, nullable=False),
        Column("provider", Text),
        _timestamp("failed_at", nullable=False, server_default=func.now()),
        Index(f"{name}_message", "message_id", "id"),
    )


def holds_table(metadata: MetaData) -> Table:
    """What is parked on purpose, why, by whom and until when. Rows point here with ``hold_id``."""
    return Table(
        "outbox_holds",
        metadata,
        Column("id", BigInteger, Identity(always=True), primary_key=True),
        Column("scope", Text, nullable=False, comment="all, template, provider, tag or ordering_key"),
        Column("value", Text, nullable=False, server_default="", comment="which one; empty for all"),
        Column("reason", Text, nullable=False),
        Column("held_by", Text, nullable=False),
        _timestamp("created_at", nullable=False, server_default=func.now()),
        _timestamp("until", comment="lifted by itself then; NULL: until a person lifts it"),
        CheckConstraint(
            "scope IN ('all', 'template', 'provider', 'tag', 'ordering_key')", name="outbox_holds_scope_check"
        ),
        CheckConstraint("(scope = 'all') = (value = '')", name="outbox_holds_value_check"),
        Index("outbox_holds_target", "scope", "value", unique=True),
    )


def processes_table(metadata: MetaData) -> Table:
    """What each relay, worker and beat last achieved, so that health needs the database only."""
    return Table(
        "outbox_processes",
        metadata,
        Column("name", Text, primary_key=True, comment="kind@host:pid"),
        Column("kind", Text, nullable=False, comment="relay, worker or beat"),
        Column("host", Text, nullable=False),
        Column("pid", Integer, nullable=False),
        Column("doing", Text, nullable=False, server_default=""),
        _timestamp("started_at", nullable=False, server_default=func.now()),
        _timestamp("progress_at", nullable=False, server_default=func.now()),
        Column("details", JSONB, nullable=False, server_default=text("'{}'::jsonb")),
    )


def relay_state_table(metadata: MetaData) -> Table:
    """One row: whether the relays sleep (the doorbell rings only then) and the broker's mark."""
    return Table(
        "outbox_relay_state",
        metadata,
        Column("id", SmallInteger, primary_key=True, server_default="1"),
        Column("asleep", Boolean, nullable=False, server_default=false()),
        Column("broker_mark", Text, comment="the random mark last left in the broker"),
        CheckConstraint("id = 1", name="outbox_relay_state_one_row_check"),
        postgresql_with={"fillfactor": "50"},
    )


TURN_SEQUENCE: Final = "outbox_turns_seq_seq"
"""The sequence that gives ``ordering_seq``."""


def turns_table(metadata: MetaData) -> Table:
    """Empty for ever: its identity column brings the sequence of ``ordering_seq`` along.

    A bare sequence would be missed by Alembic's autogenerate in a producer's own migrations.
    """
    return Table("outbox_turns", metadata, Column("seq", BigInteger, Identity(always=True), primary_key=True))
