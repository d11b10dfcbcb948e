"""Whether the database is fit for an outbox: its tables, its vacuum, and who stands in their way."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from psycopg import Connection
from sqlalchemy import CheckConstraint

from outbox_mail.errors import MigrationError
from outbox_mail.mail.outbox import MAIL
from outbox_mail.mail.tables import metadata
from outbox_mail.operations.doctor.check import Check, duration, ok, problem, warning
from outbox_mail.operations.migrate import pending_on
from outbox_mail.outbox.columns import STORAGE_PARAMETERS

OLDEST_POSTGRESQL: Final = 140_000
LONG_TRANSACTION_SECONDS: Final = 300.0
_CLOCKS_APART_SECONDS: Final = 5.0


def server(connection: Connection[Any]) -> Check:
    """Its version, and its clock beside this machine's."""
    row = connection.execute("SELECT current_setting('server_version_num')::int, clock_timestamp()").fetchone()
    version, clock = row or (0, datetime.now(UTC))
    apart = abs((clock - datetime.now(UTC)).total_seconds())
    shown = f"PostgreSQL {version // 10_000}"
    if version < OLDEST_POSTGRESQL:
        return problem("database", shown, f"Upgrade to PostgreSQL {OLDEST_POSTGRESQL // 10_000} or newer")
    if apart > _CLOCKS_APART_SECONDS:
        return warning(
            "database",
            f"{shown}; its clock and this machine's are {duration(apart)} apart",
            "Leases and due times go by the database's clock alone, but logs and TLS suffer: set up NTP on both",
        )
    return ok("database", shown)


def migrations(connection: Connection[Any]) -> Check:
    """Whether the tables are this version's."""
    try:
        waiting = pending_on(connection)
    except MigrationError as error:
        return problem(
            "migrations", str(error), "See which versions run where: no process may be older than the database"
        )
    if waiting:
        listed = ", ".join(f"{revision.id} ({revision.title})" for revision in waiting)
        return problem("migrations", f"not run: {listed}", "Run outbox-mail migrate")
    return ok("migrations", "at head")


def schema(connection: Connection[Any]) -> Check:
    """Whether every CHECK and index is there and valid: each stands for a promise or a plan."""
    checks = {
        str(constraint.name)
        for table in metadata.tables.values()
        for constraint in table.constraints
        if isinstance(constraint, CheckConstraint)
    }
    indexes = {str(index.name) for table in metadata.tables.values() for index in table.indexes}
    valid = connection.execute(
        """SELECT conname FROM pg_constraint WHERE contype = 'c' AND convalidated
                AND connamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass(%(table)s))
            UNION SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
            WHERE i.indisvalid AND i.indisready
                AND c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass(%(table)s))""",
        {"table": MAIL.table},
    ).fetchall()
    missing = sorted((checks | indexes) - {row[0] for row in valid})
    if missing:
        return problem(
            "schema",
            f"missing or not valid: {', '.join(missing)}",
            "Make them again as outbox-mail migrate --sql shows, or mend them: VALIDATE CONSTRAINT, REINDEX",
        )
    return ok("schema", f"{len(checks)} CHECKs and {len(indexes)} indexes are valid")


def vacuum(connection: Connection[Any]) -> Check:
    """Whether autovacuum comes as often as the table needs."""
    row = connection.execute(
        """SELECT current_setting('autovacuum'), coalesce(c.reloptions, '{}'), s.n_dead_tup, s.n_live_tup
            FROM pg_class c LEFT JOIN pg_stat_user_tables s ON s.relid = c.oid WHERE c.oid = to_regclass(%s)""",
        [MAIL.table],
    ).fetchone()
    if row is None:
        return problem("vacuum", f"there is no table {MAIL.table}", "Run outbox-mail migrate")
    running, options, dead, live = row
    given = dict(option.split("=", 1) for option in options)
    if running != "on" or given.get("autovacuum_enabled") == "false":
        return problem(
            "vacuum",
            "autovacuum is off",
            f"Turn it on (autovacuum = on; ALTER TABLE {MAIL.table} RESET (autovacuum_enabled)): scans grow slower "
            "with every dead row",
        )
    changed = [name for name, value in STORAGE_PARAMETERS.items() if given.get(name) != value]
    if changed:
        wanted = ", ".join(f"{name} = {STORAGE_PARAMETERS[name]}" for name in changed)
        return warning(
            "vacuum",
            f"the table's own settings differ: {', '.join(changed)}",
            f"ALTER TABLE {MAIL.table} SET ({wanted}), unless you measured better ones",
        )
    if (dead or 0) > 50_000 and dead > (live or 0):
        return warning(
            "vacuum", f"{dead} dead rows beside {live} live ones", "Find the transaction that holds back vacuum (below)"
        )
    return ok("vacuum", f"{dead or 0} dead rows")


def long_transactions(connection: Connection[Any]) -> Check:
    """Whether something keeps dead rows from being removed, in whatever database of the server."""
    held: list[str] = []
    for pid, application, state, seconds in connection.execute(
        """SELECT pid, coalesce(nullif(application_name, ''), usename, '?'), coalesce(state, '?'),
                extract(epoch FROM now() - xact_start)::float8
            FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'
                AND xact_start < now() - make_interval(secs => %s) ORDER BY xact_start LIMIT 5""",
        [LONG_TRANSACTION_SECONDS],
    ).fetchall():
        held.append(f"pid {pid} ({application}, {state}) since {duration(seconds)}")
    held.extend(
        f"prepared transaction {gid!r} since {duration(seconds)}"
        for gid, seconds in connection.execute(
            "SELECT gid, extract(epoch FROM now() - prepared)::float8 FROM pg_prepared_xacts"
            " WHERE prepared < now() - make_interval(secs => %s) LIMIT 5",
            [LONG_TRANSACTION_SECONDS],
        ).fetchall()
    )
    held.extend(
        f"replication slot {name!r} without a reader"
        for (name,) in connection.execute(
            "SELECT slot_name FROM pg_replication_slots WHERE NOT active"
            " AND (xmin IS NOT NULL OR catalog_xmin IS NOT NULL) LIMIT 5"
        ).fetchall()
    )
    if held:
        return warning(
            "long transactions",
            "; ".join(held),
            "Each keeps vacuum from removing dead rows, so that scans grow slower: end it "
            "(SELECT pg_terminate_backend(pid); ROLLBACK PREPARED; SELECT pg_drop_replication_slot), "
            "and set idle_in_transaction_session_timeout",
        )
    return ok("long transactions", "none over 5 min")


def connections(connection: Connection[Any]) -> Check:
    """Whether the server has room for one more."""
    row = connection.execute(
        """SELECT count(*), current_setting('max_connections')::int FROM pg_stat_activity
            WHERE backend_type = 'client backend'"""
    ).fetchone()
    used, most = row or (0, 1)
    found = f"{used} of {most} in use"
    if used > 0.85 * most:
        return warning(
            "connections", found, "Raise max_connections, lower OUTBOX_MAIL_DATABASE_POOL_SIZE, or use a pooler"
        )
    return ok("connections", found)


CHECKS: Final = (server, migrations, schema, vacuum, long_transactions, connections)
