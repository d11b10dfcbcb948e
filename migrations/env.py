"""Runs the migrations on the connection that ``outbox-mail migrate`` passes, or prints their SQL."""

from alembic import context

from outbox_mail.mail.tables import metadata

config = context.config


def run_offline() -> None:
    """Print the SQL; no database is needed."""
    context.configure(
        dialect_name="postgresql",
        target_metadata=metadata,
        literal_binds=True,
        version_table="outbox_alembic_version",
    )
    with context.begin_transaction():
        context.run_migrations()


def run_online() -> None:
    """Run on the caller's connection; the caller commits."""
    connection = config.attributes["connection"]
    context.configure(
        connection=connection,
        target_metadata=metadata,
        version_table="outbox_alembic_version",
        compare_type=True,
        compare_server_default=True,
    )
    with context.begin_transaction():
        context.run_migrations()


if context.is_offline_mode():
    run_offline()
else:
    run_online()
