"""Create the outbox

Revision: 0001, after
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "email_files_to_remove",
        sa.Column("storage_ref", sa.Text(), nullable=False),
        sa.Column("recorded_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("storage_ref"),
    )
    op.create_table(
        "email_messages",
        sa.Column(
            "id",
            sa.Uuid(),
            server_default=sa.text("gen_random_uuid()"),
            nullable=False,
            comment="UUIDv7 from enqueue; the idempotency token downstream",
        ),
        sa.Column("status", sa.Text(), server_default="PENDING", nullable=False),
        sa.Column("priority", sa.SmallInteger(), server_default="2", nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column(
            "send_at", sa.DateTime(timezone=True), nullable=True, comment="what the producer asked for; never changes"
        ),
        sa.Column(
            "due_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="not before: send_at, then the retry",
        ),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True, comment="worthless after"),
        sa.Column(
            "published_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="when an id last went out to the broker; NULL: not out",
        ),
        sa.Column("locked_at", sa.DateTime(timezone=True), nullable=True, comment="since when it is claimed"),
        sa.Column("sent_at", sa.DateTime(timezone=True), nullable=True, comment="when the provider accepted it"),
        sa.Column("failed_at", sa.DateTime(timezone=True), nullable=True, comment="when it was given up"),
        sa.Column("claims", sa.Integer(), server_default="0", nullable=False, comment="fencing: rises with each claim"),
        sa.Column("reap_count", sa.SmallInteger(), server_default="0", nullable=False, comment="leases that ran out"),
        sa.Column("attempt_count", sa.SmallInteger(), server_default="0", nullable=False, comment="failed attempts"),
        sa.Column(
            "at_most_once", sa.Boolean(), server_default=sa.text("false"), nullable=False, comment="set by the claim"
        ),
        sa.Column("error_code", sa.Text(), nullable=True),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column(
            "hold_id", sa.BigInteger(), nullable=True, comment="parked by this hold, 0: until its turn; NULL: free"
        ),
        sa.Column("ordering_key", sa.Text(), nullable=True),
        sa.Column("ordering_seq", sa.BigInteger(), nullable=True, comment="place within the ordering key"),
        sa.Column("idempotency_key", sa.Text(), nullable=True, comment="unique while the row lives"),
        sa.Column("entity_type", sa.Text(), nullable=True, comment="what business entity it belongs to"),
        sa.Column("entity_id", sa.Text(), nullable=True),
        sa.Column("tags", postgresql.ARRAY(sa.Text()), server_default=sa.text("'{}'::text[]"), nullable=False),
        sa.Column(
            "trace_context",
            postgresql.JSONB(astext_type=sa.Text()),
            nullable=True,
            comment="W3C trace context of the producer",
        ),
        sa.Column(
            "to",
            postgresql.ARRAY(sa.Text()),
            server_default=sa.text("'{}'::text[]"),
            nullable=False,
            comment="mailboxes as they were at enqueue: name <local@domain>",
        ),
        sa.Column(
            "cc",
            postgresql.ARRAY(sa.Text()),
            server_default=sa.text("'{}'::text[]"),
            nullable=False,
            comment="likewise",
        ),
        sa.Column(
            "bcc",
            postgresql.ARRAY(sa.Text()),
            server_default=sa.text("'{}'::text[]"),
            nullable=False,
            comment="likewise; in the envelope only",
        ),
        sa.Column("template", sa.Text(), nullable=False),
        sa.Column(
            "parameters", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'::jsonb"), nullable=False
        ),
        sa.Column("schema_version", sa.SmallInteger(), server_default="1", nullable=False, comment="of the parameters"),
        sa.Column(
            "attachments",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'[]'::jsonb"),
            nullable=False,
            comment="references",
        ),
        sa.Column("locale", sa.Text(), nullable=True),
        sa.Column("sender", sa.Text(), nullable=True),
        sa.Column(
            "reply_to",
            postgresql.ARRAY(sa.Text()),
            server_default=sa.text("'{}'::text[]"),
            nullable=False,
            comment="mailboxes",
        ),
        sa.Column("headers", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("provider", sa.Text(), nullable=True, comment="who accepted or refused it last"),
        sa.Column("provider_message_id", sa.Text(), nullable=True),
        sa.Column(
            "outcomes",
            postgresql.JSONB(astext_type=sa.Text()),
            nullable=True,
            comment="per address, only when not all were accepted at once",
        ),
        sa.CheckConstraint("(status = 'FAILED') = (failed_at IS NOT NULL)", name="email_messages_failed_stamp_check"),
        sa.CheckConstraint("(status = 'SENDING') = (locked_at IS NOT NULL)", name="email_messages_sending_stamp_check"),
        sa.CheckConstraint("(status = 'SENT') = (sent_at IS NOT NULL)", name="email_messages_sent_stamp_check"),
        sa.CheckConstraint("hold_id IS NULL OR status = 'PENDING'", name="email_messages_held_is_pending_check"),
        sa.CheckConstraint("jsonb_typeof(attachments) = 'array'", name="email_messages_attachments_check"),
        sa.CheckConstraint("jsonb_typeof(parameters) = 'object'", name="email_messages_parameters_check"),
        sa.CheckConstraint("status <> 'FAILED' OR error_code IS NOT NULL", name="email_messages_failed_has_code_check"),
        sa.CheckConstraint("status <> 'SENDING' OR claims > 0", name="email_messages_sending_was_claimed_check"),
        sa.CheckConstraint("status IN ('PENDING', 'SENDING', 'SENT', 'FAILED')", name="email_messages_status_check"),
        sa.CheckConstraint("template <> '' AND char_length(template) <= 200", name="email_messages_template_check"),
        sa.CheckConstraint("(entity_type IS NULL) = (entity_id IS NULL)", name="email_messages_entity_check"),
        sa.CheckConstraint(
            "(created_at BETWEEN '0001-01-02 00:00:00+00' AND '9999-12-30 00:00:00+00' OR created_at IS NULL) AND "
            "(send_at BETWEEN '0001-01-02 00:00:00+00' AND '9999-12-30 00:00:00+00' OR send_at IS NULL)",
            name="email_messages_times_check",
        ),
        sa.CheckConstraint("(ordering_key IS NULL) = (ordering_seq IS NULL)", name="email_messages_ordering_check"),
        sa.CheckConstraint(
            'cardinality("to") + cardinality(cc) + cardinality(bcc) > 0', name="email_messages_recipients_check"
        ),
        sa.CheckConstraint(
            "char_length(idempotency_key) BETWEEN 1 AND 255", name="email_messages_idempotency_key_check"
        ),
        sa.CheckConstraint("char_length(ordering_key) BETWEEN 1 AND 255", name="email_messages_ordering_key_check"),
        sa.CheckConstraint(
            "claims >= 0 AND reap_count >= 0 AND attempt_count >= 0", name="email_messages_counters_check"
        ),
        sa.CheckConstraint("priority BETWEEN 1 AND 3", name="email_messages_priority_check"),
        sa.PrimaryKeyConstraint("id"),
        postgresql_with={
            "fillfactor": "80",
            "autovacuum_vacuum_scale_factor": "0",
            "autovacuum_vacuum_threshold": "5000",
            "autovacuum_vacuum_insert_scale_factor": "0.05",
            "autovacuum_analyze_scale_factor": "0.02",
            "autovacuum_vacuum_cost_delay": "0",
        },
    )
    op.create_index(
        "email_messages_attachments",
        "email_messages",
        ["attachments"],
        unique=False,
        postgresql_using="gin",
        postgresql_ops={"attachments": "jsonb_path_ops"},
        postgresql_where=sa.text("attachments <> '[]'::jsonb"),
    )
    op.create_index(
        "email_messages_due",
        "email_messages",
        ["priority", "due_at"],
        unique=False,
        postgresql_where=sa.text("status = 'PENDING' AND published_at IS NULL AND hold_id IS NULL"),
    )
    op.create_index(
        "email_messages_entity",
        "email_messages",
        ["entity_type", "entity_id"],
        unique=False,
        postgresql_where=sa.text("entity_type IS NOT NULL"),
    )
    op.create_index(
        "email_messages_expiring",
        "email_messages",
        ["expires_at"],
        unique=False,
        postgresql_where=sa.text("status = 'PENDING' AND expires_at IS NOT NULL"),
    )
    op.create_index(
        "email_messages_failed",
        "email_messages",
        ["failed_at"],
        unique=False,
        postgresql_where=sa.text("status = 'FAILED'"),
    )
    op.create_index(
        "email_messages_held",
        "email_messages",
        ["hold_id"],
        unique=False,
        postgresql_where=sa.text("hold_id IS NOT NULL"),
    )
    op.create_index(
        "email_messages_idempotency_key",
        "email_messages",
        ["idempotency_key"],
        unique=True,
        postgresql_where=sa.text("idempotency_key IS NOT NULL"),
    )
    op.create_index(
        "email_messages_locked",
        "email_messages",
        ["locked_at"],
        unique=False,
        postgresql_where=sa.text("status = 'SENDING'"),
    )
    op.create_index(
        "email_messages_out",
        "email_messages",
        ["priority", "published_at"],
        unique=False,
        postgresql_include=["due_at"],
        postgresql_where=sa.text("status = 'PENDING' AND published_at IS NOT NULL"),
    )
    op.create_index(
        "email_messages_sent", "email_messages", ["sent_at"], unique=False, postgresql_where=sa.text("status = 'SENT'")
    )
    op.create_index(
        "email_messages_turn",
        "email_messages",
        ["ordering_key", "ordering_seq"],
        unique=False,
        postgresql_where=sa.text("ordering_key IS NOT NULL AND status IN ('PENDING', 'SENDING')"),
    )
    op.create_index(
        "email_messages_waiting_turn",
        "email_messages",
        ["ordering_key", "ordering_seq"],
        unique=False,
        postgresql_where=sa.text("hold_id = 0"),
    )
    op.create_table(
        "email_messages_archive",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("status", sa.Text(), nullable=True),
        sa.Column("priority", sa.SmallInteger(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("send_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("published_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("locked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("sent_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("failed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("claims", sa.Integer(), nullable=True),
        sa.Column("reap_count", sa.SmallInteger(), nullable=True),
        sa.Column("attempt_count", sa.SmallInteger(), nullable=True),
        sa.Column("at_most_once", sa.Boolean(), nullable=True),
        sa.Column("error_code", sa.Text(), nullable=True),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("hold_id", sa.BigInteger(), nullable=True),
        sa.Column("ordering_key", sa.Text(), nullable=True),
        sa.Column("ordering_seq", sa.BigInteger(), nullable=True),
        sa.Column("idempotency_key", sa.Text(), nullable=True),
        sa.Column("entity_type", sa.Text(), nullable=True),
        sa.Column("entity_id", sa.Text(), nullable=True),
        sa.Column("tags", postgresql.ARRAY(sa.Text()), nullable=True),
        sa.Column("trace_context", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("to", postgresql.ARRAY(sa.Text()), nullable=True),
        sa.Column("cc", postgresql.ARRAY(sa.Text()), nullable=True),
        sa.Column("bcc", postgresql.ARRAY(sa.Text()), nullable=True),
        sa.Column("template", sa.Text(), nullable=True),
        sa.Column("parameters", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("schema_version", sa.SmallInteger(), nullable=True),
        sa.Column("attachments", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("locale", sa.Text(), nullable=True),
        sa.Column("sender", sa.Text(), nullable=True),
        sa.Column("reply_to", postgresql.ARRAY(sa.Text()), nullable=True),
        sa.Column("headers", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("provider", sa.Text(), nullable=True),
        sa.Column("provider_message_id", sa.Text(), nullable=True),
        sa.Column("outcomes", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("archived_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "outbox_holds",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False, comment="all, template, provider, tag or ordering_key"),
        sa.Column("value", sa.Text(), server_default="", nullable=False, comment="which one; empty for all"),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("held_by", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column(
            "until",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="lifted by itself then; NULL: until a person lifts it",
        ),
        sa.CheckConstraint("(scope = 'all') = (value = '')", name="outbox_holds_value_check"),
        sa.CheckConstraint(
            "scope IN ('all', 'template', 'provider', 'tag', 'ordering_key')", name="outbox_holds_scope_check"
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("outbox_holds_target", "outbox_holds", ["scope", "value"], unique=True)
    op.create_table(
        "outbox_processes",
        sa.Column("name", sa.Text(), nullable=False, comment="kind@host:pid"),
        sa.Column("kind", sa.Text(), nullable=False, comment="relay, worker or beat"),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("doing", sa.Text(), server_default="", nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("progress_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column(
            "details", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'::jsonb"), nullable=False
        ),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "outbox_relay_state",
        sa.Column("id", sa.SmallInteger(), server_default="1", nullable=False),
        sa.Column("asleep", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("broker_mark", sa.Text(), nullable=True, comment="the random mark last left in the broker"),
        sa.CheckConstraint("id = 1", name="outbox_relay_state_one_row_check"),
        sa.PrimaryKeyConstraint("id"),
        postgresql_with={"fillfactor": "50"},
    )
    op.create_table(
        "outbox_turns",
        sa.Column("seq", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
    )
    op.create_table(
        "email_attempts",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("message_id", sa.Uuid(), nullable=False),
        sa.Column("claim", sa.Integer(), nullable=False, comment="which claim of the message made it"),
        sa.Column("error_class", sa.Text(), nullable=False),
        sa.Column("error_code", sa.Text(), nullable=False),
        sa.Column("error_message", sa.Text(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=True),
        sa.Column("failed_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["message_id"], ["email_messages.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("email_attempts_message", "email_attempts", ["message_id", "id"], unique=False)


def downgrade() -> None:
    """Undo."""
    op.drop_index("email_attempts_message", table_name="email_attempts")
    op.drop_table("email_attempts")
    op.drop_table("outbox_turns")
    op.drop_table("outbox_relay_state")
    op.drop_table("outbox_processes")
    op.drop_index("outbox_holds_target", table_name="outbox_holds")
    op.drop_table("outbox_holds")
    op.drop_table("email_messages_archive")
    op.drop_index("email_messages_waiting_turn", table_name="email_messages", postgresql_where=sa.text("hold_id = 0"))
    op.drop_index(
        "email_messages_turn",
        table_name="email_messages",
        postgresql_where=sa.text("ordering_key IS NOT NULL AND status IN ('PENDING', 'SENDING')"),
    )
    op.drop_index("email_messages_sent", table_name="email_messages", postgresql_where=sa.text("status = 'SENT'"))
    op.drop_index(
        "email_messages_out",
        table_name="email_messages",
        postgresql_include=["due_at"],
        postgresql_where=sa.text("status = 'PENDING' AND published_at IS NOT NULL"),
    )
    op.drop_index("email_messages_locked", table_name="email_messages", postgresql_where=sa.text("status = 'SENDING'"))
    op.drop_index(
        "email_messages_idempotency_key",
        table_name="email_messages",
        postgresql_where=sa.text("idempotency_key IS NOT NULL"),
    )
    op.drop_index("email_messages_held", table_name="email_messages", postgresql_where=sa.text("hold_id IS NOT NULL"))
    op.drop_index("email_messages_failed", table_name="email_messages", postgresql_where=sa.text("status = 'FAILED'"))
    op.drop_index(
        "email_messages_expiring",
        table_name="email_messages",
        postgresql_where=sa.text("status = 'PENDING' AND expires_at IS NOT NULL"),
    )
    op.drop_index(
        "email_messages_entity", table_name="email_messages", postgresql_where=sa.text("entity_type IS NOT NULL")
    )
    op.drop_index(
        "email_messages_due",
        table_name="email_messages",
        postgresql_where=sa.text("status = 'PENDING' AND published_at IS NULL AND hold_id IS NULL"),
    )
    op.drop_index(
        "email_messages_attachments",
        table_name="email_messages",
        postgresql_using="gin",
        postgresql_ops={"attachments": "jsonb_path_ops"},
        postgresql_where=sa.text("attachments <> '[]'::jsonb"),
    )
    op.drop_table("email_messages")
    op.drop_table("email_files_to_remove")
