"""Each command does its work, with tables for people and JSON for scripts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from outbox_mail.outbox.processes import report_progress
from outbox_mail.testing.command import Command

Connection = psycopg.Connection[Any]


@pytest.fixture
def failed(connection: Connection) -> UUID:
    """A FAILED message."""
    return row(connection, "FAILED", "failed_at = now(), error_code = 'smtp_550', error_message = 'no such user'")


def row(
    connection: Connection, status: str = "PENDING", change: str = "claims = 0", to: str = "ayse@example.com"
) -> UUID:
    id_ = uuid4()
    connection.execute(
        """INSERT INTO email_messages (id, "to", template, parameters, tags)
            VALUES (%s, ARRAY[%s], 'ORDER', '{"code": "1234"}', ARRAY['vip'])""",
        [id_, to],
    )
    connection.execute(f"UPDATE email_messages SET status = '{status}', {change} WHERE id = %s", [id_])
    return id_


def status_of(connection: Connection, id_: UUID) -> tuple[str, str | None, str | None]:
    (found,) = connection.execute(
        "SELECT status, error_code, error_message FROM email_messages WHERE id = %s", [id_]
    ).fetchall()
    return found  # type: ignore[no-any-return]


def test_status_counts_for_people_and_for_scripts(run: Command, failed: UUID, connection: Connection) -> None:
    row(connection)
    report_progress(connection, "relay", "idle", started=True)

    shown = run("status")
    told = run("status", "--json")

    assert shown.code == told.code == 0
    assert "smtp_550" in shown.out
    assert "relay@" in shown.out
    assert set(told.json) == {
        "at",
        "messages",
        "pending",
        "oldest_due_pending_age_seconds",
        "oldest_sending_age_seconds",
        "failed_by_code",
        "holds",
        "processes",
    }
    assert told.json["messages"]["PENDING"] == {"rows": 1, "estimated": False}
    assert told.json["pending"]["due"]["rows"] == 1
    assert told.json["failed_by_code"] == {"smtp_550": 1}


def test_list_finds_by_status_and_pages(run: Command, connection: Connection) -> None:
    made = {str(row(connection)) for _ in range(5)}
    found: set[str] = set()
    after: list[str] = []
    while True:
        page = run("list", "--status", "pending", "--limit", "2", "--json", *after).json
        found |= {message["id"] for message in page["messages"]}
        if page["next"] is None:
            break
        after = ["--after", page["next"]]

    assert found == made
    shown = run("list", "--to", "ayse@example.com", "--since", "1h", "--limit", "5")
    assert all(id_ in shown.out for id_ in made)
    assert "No message" in run("list", "--to", "fatma@example.com").out


def test_show_hides_parameters_until_asked(run: Command, failed: UUID) -> None:
    assert "1234" not in run("show", str(failed)).out
    assert "1234" in run("show", str(failed), "--parameters").out
    assert run("show", str(failed), "--json").json["parameters"] == {"code": "(hidden)"}
    assert run("show", str(failed), "--json", "--parameters").json["parameters"] == {"code": "1234"}


def test_requeue_by_id_keeps_who_and_why(run: Command, failed: UUID, connection: Connection) -> None:
    done = run("requeue", str(failed), "--reason", "mailbox is back")

    assert done.code == 0
    assert status_of(connection, failed) == ("PENDING", "smtp_550", "requeued by ayse: mailbox is back")
    again = run("requeue", str(failed), "--reason", "again", "--by", "fatma")
    assert again.code == 1
    assert again.err.count("\n") == 1
    assert "PENDING" in again.err


def test_some_of_several_ids_are_done_and_the_others_told(run: Command, failed: UUID) -> None:
    nobody = uuid4()
    done = run("requeue", str(nobody), str(failed), "--reason", "r", "--json")

    assert done.code == 1
    assert done.json["done"] == [str(failed)]
    assert [entry["id"] for entry in done.json["refused"]] == [str(nobody)]


def test_a_filter_asks_before_it_acts_on_many(run: Command, connection: Connection, failed: UUID) -> None:
    refused = run("requeue", "--template", "ORDER", "--reason", "r")
    assert refused.code == 2
    assert "--yes" in refused.err
    assert status_of(connection, failed)[0] == "FAILED"

    assert run("requeue", "--template", "ORDER", "--reason", "r", "--yes", "--json").json["done"] == [str(failed)]


def test_cancel_and_discard_say_what_became_of_it(run: Command, connection: Connection, failed: UUID) -> None:
    pending = row(connection)

    assert run("cancel", str(pending), "--reason", "withdrawn").code == 0
    assert status_of(connection, pending) == ("FAILED", "cancelled", "cancelled by ayse: withdrawn")
    assert run("discard", "--error-code", "smtp_550", "--reason", "typo", "--yes").code == 0
    assert status_of(connection, failed)[1] == "discarded"


@pytest.mark.parametrize("command", ["requeue", "cancel", "discard"])
def test_neither_ids_nor_filter_does_nothing_to_everything(run: Command, connection: Connection, command: str) -> None:
    id_ = row(connection)
    for arguments in ([], [str(id_), "--template", "ORDER"]):
        done = run(command, *arguments, "--reason", "r", "--yes")
        assert done.code == 2
        assert "ids or a filter" in done.err
    assert status_of(connection, id_)[0] == "PENDING"


def test_pause_and_resume(run: Command) -> None:
    made = run("pause", "template", "ORDER", "--reason", "maintenance: new server", "--until", "2h", "--json").json
    assert (made["scope"], made["value"], made["held_by"]) == ("template", "ORDER", "ayse")
    assert "maintenance" in run("status").out
    assert run("pause", "template", "ORDER", "--reason", "r").code == 1
    assert run("resume", "template", "ORDER", "--json").json == {"scope": "template", "value": "ORDER", "freed": 0}
    assert run("resume", "template", "ORDER").code == 1
    assert run("pause", "all", "x", "--reason", "r").code == 2
    assert run("pause", "everything", "--reason", "r").code == 2


def test_health_is_an_exit_code(run: Command, connection: Connection) -> None:
    assert run("health").code == 1
    report_progress(connection, "relay", "idle", started=True)
    assert run("health", "relay").code == 0
    told = run("health", "relay", "worker", "--json")
    assert (told.code, told.json["ok"]) == (1, False)
    assert run("health", "relay", "--stale-seconds", "0.1").code in {0, 1}


def test_doctor_tells_all_findings(run: Command, redis_url: str, root: Path) -> None:
    settings = {"OUTBOX_MAIL_BROKER_URL": redis_url, "OUTBOX_MAIL_TEMPLATES": str(root / "examples/shop/templates")}

    told = run("doctor", "--json", **settings)
    shown = run("doctor", **settings)

    assert told.code == shown.code == 1
    assert told.json["ok"] is False
    assert {check["name"]: check["level"] for check in told.json["checks"]}["broker"] == "ok"
    assert "→ Start it: python -m relay" in shown.out


def test_migrate_needs_the_database_s_url_and_nothing_else(run: Command, postgres: Any) -> None:
    postgres.create_database("cli_migrate")
    url = {"OUTBOX_MAIL_DATABASE_URL": postgres.url_for("cli_migrate")}

    assert run("status", **url).err.endswith("run outbox-mail migrate\n")
    assert run("migrate", "--check", **url).code == 1
    assert [revision["id"] for revision in run("migrate", "--json", **url).json["applied"]][:1] == ["0001"]
    assert run("migrate", "--check", "--json", **url).json == {"pending": []}
    assert run("migrate", **url).out == "All migrations were run already.\n"


def test_the_sql_of_the_migrations_needs_no_database(run: Command) -> None:
    printed = run("migrate", "--sql", OUTBOX_MAIL_DATABASE_URL=None)

    assert printed.code == 0
    assert "CREATE TABLE email_messages" in printed.out
    assert printed.err == ""


def test_preview_renders_without_a_database(run: Command, tmp_path: Path) -> None:
    folder = tmp_path / "templates/HELLO"
    folder.mkdir(parents=True)
    (folder / "subject.txt").write_text("Hello {{ name }}")
    (folder / "body.html").write_text("<p>{{ name }}</p>")
    parameters = tmp_path / "p.json"
    parameters.write_text(json.dumps({"name": "A<b"}))
    settings = {"OUTBOX_MAIL_TEMPLATES": str(tmp_path / "templates"), "OUTBOX_MAIL_DATABASE_URL": None}

    shown = run("preview", "HELLO", "--parameters", str(parameters), **settings)
    assert "Hello A<b" in shown.out
    assert (
        run("preview", "HELLO", "--parameters", "-", "--html", stdin='{"name": "A<b"}', **settings).out
        == "<p>A&lt;b</p>"
    )
    assert run("preview", "HELLO", "--parameters", str(parameters), "--json", **settings).json["text"] is None
    for bad in ("[1]", "{", "NaN", "[" * 100_000, '{"a": 1}'):
        refused = run("preview", "HELLO", "--parameters", "-", stdin=bad, **settings)
        assert refused.code in {1, 2}
        assert refused.err.count("\n") == 1
    assert run("preview", "HELLO", "--parameters", str(tmp_path), **settings).code == 2
    assert run("preview", "../HELLO", **settings).code == 1
    assert run("preview", "HELLO", "--text", "--parameters", str(parameters), **settings).code == 2


def test_version_is_told(run: Command) -> None:
    assert run("version").out.strip()[0].isdigit()
