"""The doctor finds each thing that is wrong, and says what to do."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from outbox_mail.operations.doctor import Check, Level, examine
from outbox_mail.operations.doctor import broker as broker_module
from outbox_mail.operations.doctor.broker import ask_broker
from outbox_mail.outbox.processes import report_progress
from outbox_mail.settings import Settings, load_settings

Connection = psycopg.Connection[Any]


@pytest.fixture
def settings(database_url: str, redis_url: str, tmp_path: Path) -> Settings:
    """Settings with which nothing is wrong."""
    template = tmp_path / "templates/ORDER"
    template.mkdir(parents=True)
    (template / "subject.txt").write_text("Order {{ number }}")
    (template / "body.txt").write_text("Thank you.")
    (tmp_path / "files").mkdir()
    return load_settings(
        database_url=database_url,
        broker_url=redis_url,
        provider_url="smtp://mail.example.com:587",
        templates=(str(tmp_path / "templates"),),
        attachment_stores=(f"file://{tmp_path}/files",),
        default_sender="Shop <no-reply@example.com>",
        message_id_domain="example.com",
    )


@pytest.fixture
def running(connection: Connection) -> None:
    """A relay, a worker and a beat that make progress."""
    for kind in ("relay", "worker", "beat"):
        report_progress(connection, kind, "idle", started=True)


def findings(settings: Settings, **changes: Any) -> dict[str, Check]:
    return {check.name: check for check in examine(settings.model_copy(update=changes))}


def not_ok(settings: Settings, **changes: Any) -> dict[str, Level]:
    found = findings(settings, **changes)
    for check in found.values():
        assert bool(check.advice) == (check.level is not Level.OK)
    return {name: check.level for name, check in found.items() if check.level is not Level.OK}


def test_a_healthy_service_has_nothing_to_say(settings: Settings, running: None) -> None:
    assert not_ok(settings) == {}
    assert len(findings(settings)) >= 16


def test_each_kind_of_process_is_missed(settings: Settings) -> None:
    assert not_ok(settings) == dict.fromkeys(("relay", "worker", "beat"), Level.PROBLEM)


def test_a_process_that_hangs_is_named(settings: Settings, running: None, connection: Connection) -> None:
    connection.execute("UPDATE outbox_processes SET progress_at = now() - interval '5 minutes' WHERE kind = 'relay'")

    check = findings(settings)["relay"]

    assert check.level is Level.PROBLEM
    assert "relay@" in check.found


def test_what_waits_too_long_and_what_is_stuck_is_found(
    settings: Settings, running: None, connection: Connection
) -> None:
    connection.execute(
        """INSERT INTO email_messages ("to", template, status, claims, locked_at, due_at) VALUES
            (ARRAY['a@example.com'], 'T', 'PENDING', 0, NULL, now() - interval '1 hour'),
            (ARRAY['a@example.com'], 'T', 'SENDING', 1, now() - interval '1 hour', now())"""
    )

    assert not_ok(settings) == dict.fromkeys(("oldest due PENDING", "SENDING"), Level.PROBLEM)


def test_a_hold_in_force_is_shown_with_who_and_why(settings: Settings, running: None, connection: Connection) -> None:
    connection.execute("INSERT INTO outbox_holds (scope, value, reason, held_by) VALUES ('tag', 'vip', 'why', 'ayse')")

    check = findings(settings)["holds"]

    assert check.level is Level.WARNING
    assert "tag vip by ayse: why" in check.found


@pytest.mark.parametrize(
    ("harm", "name"),
    [
        ("DROP INDEX email_messages_due", "schema"),
        ("ALTER TABLE email_messages DROP CONSTRAINT email_messages_status_check", "schema"),
        ("ALTER TABLE email_messages SET (autovacuum_enabled = false)", "vacuum"),
        ("ALTER TABLE email_messages RESET (autovacuum_vacuum_threshold)", "vacuum"),
        ("UPDATE outbox_alembic_version SET version_num = '9999'", "migrations"),
        ("DELETE FROM outbox_alembic_version", "migrations"),
    ],
)
def test_harm_to_the_database_is_found(
    settings: Settings, running: None, connection: Connection, harm: str, name: str
) -> None:
    connection.execute(harm.encode())

    assert list(not_ok(settings)) == [name]


def test_a_constraint_that_was_never_validated_does_not_count(
    settings: Settings, running: None, connection: Connection
) -> None:
    connection.execute("ALTER TABLE email_messages DROP CONSTRAINT email_messages_counters_check")
    connection.execute(
        "ALTER TABLE email_messages ADD CONSTRAINT email_messages_counters_check CHECK (claims >= 0) NOT VALID"
    )

    assert "email_messages_counters_check" in findings(settings)["schema"].found


def test_a_long_transaction_is_named(
    settings: Settings, running: None, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outbox_mail.operations.doctor.database.LONG_TRANSACTION_SECONDS", 0.0)
    with psycopg.connect(database_url, application_name="sleeper") as other:
        other.execute("SELECT 1")
        check = findings(settings)["long transactions"]
        assert check.level is Level.WARNING
        assert f"pid {other.info.backend_pid} (sleeper, idle in transaction)" in check.found


def test_an_empty_database_is_told_to_be_migrated_and_nothing_raises(settings: Settings, postgres: Any) -> None:
    postgres.create_database("doctor_empty")

    found = findings(settings, database_url=type(settings.database_url)(postgres.url_for("doctor_empty")))

    assert "outbox-mail migrate" in found["migrations"].advice
    assert found["oldest"].level is Level.PROBLEM


def test_a_database_that_is_down_ends_the_list(settings: Settings) -> None:
    found = findings(settings, database_url=type(settings.database_url)("postgresql://u:hunter2@127.0.0.1:1/x"))

    assert found["database"].level is Level.PROBLEM
    assert "hunter2" not in str(found)
    assert "migrations" not in found


@pytest.mark.parametrize(
    ("changes", "name", "level"),
    [
        ({"provider_url": "smpt://host"}, "provider", Level.PROBLEM),
        ({"provider_url": "console:"}, "provider", Level.WARNING),
        ({"templates": ("/no/such/folder",)}, "templates", Level.PROBLEM),
        ({"attachment_stores": ("nonsense",)}, "attachment stores", Level.PROBLEM),
        ({"message_id_domain": "outbox.localdomain"}, "sender", Level.WARNING),
        ({"broker_url": "redis://:hunter2@127.0.0.1:1/0"}, "broker", Level.PROBLEM),
        ({"broker_url": "redis://:hunter2@127.0.0.1:99999/0"}, "broker", Level.PROBLEM),
    ],
)
def test_a_bad_setting_is_found_and_no_secret_shown(
    settings: Settings, running: None, changes: dict[str, Any], name: str, level: Level
) -> None:
    made = {
        field: type(settings.broker_url)(value) if field.endswith("_url") else value for field, value in changes.items()
    }

    assert not_ok(settings, **made) == {name: level}
    assert "hunter2" not in str(findings(settings, **made))


def test_a_broken_template_is_named_and_a_missing_parameter_is_not(settings: Settings, tmp_path: Path) -> None:
    assert findings(settings)["templates"].level is Level.OK
    broken = tmp_path / "templates/BROKEN"
    broken.mkdir()
    (broken / "subject.txt").write_text("{{ open")
    (broken / "body.txt").write_text("x")

    check = findings(settings)["templates"]

    assert check.level is Level.PROBLEM
    assert "BROKEN" in check.found


def test_polling_needs_no_notification(settings: Settings, running: None) -> None:
    assert "polls" in findings(settings, transaction_pooler=True)["LISTEN"].found


def test_the_broker_is_asked_for_its_eviction_policy(redis_url: str) -> None:
    assert ask_broker(redis_url, 5) == "noeviction"


def test_a_wrong_password_is_a_refusal_without_the_password(redis_url: str) -> None:
    with pytest.raises(ValueError, match="AUTH was refused") as refused:
        ask_broker(redis_url.replace("://:", "://:wrong"), 5)
    assert "wrong" not in str(refused.value).replace("WRONGPASS", "")


@contextmanager
def answering(answer: bytes) -> Iterator[int]:
    """A server that says ``answer`` to whoever connects, and hangs."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)

        def serve() -> None:
            client, _ = server.accept()
            with client, contextlib.suppress(OSError):
                client.sendall(answer)
                client.settimeout(5)
                while client.recv(4096):
                    pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        thread.join(5)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"x" * 100_000,
        b"$99999999999\r\n",
        b"$-1\r\n",
        b"*1000000\r\n",
        b"$abc\r\n",
        b"\xff\xfe\r\n",
        b"\r\n",
        b"-\x1b[31mERR\r\n",
    ],
)
def test_whoever_is_not_redis_is_refused_in_words(answer: bytes) -> None:
    with answering(answer) as port, pytest.raises(ValueError, match=r"PING|no Redis"):
        ask_broker(f"redis://127.0.0.1:{port}", 2)


def test_whoever_says_nothing_is_not_waited_for() -> None:
    with answering(b"") as port, pytest.raises(OSError):
        ask_broker(f"redis://127.0.0.1:{port}", 0.2)


def test_no_client_of_the_broker_is_imported() -> None:
    source = Path(broker_module.__file__).read_text()
    assert "import redis" not in source
