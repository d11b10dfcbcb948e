"""Commands that keep the service running: doctor, health, migrate, preview, version."""

from __future__ import annotations

import socket
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outbox_mail.cli import options
from outbox_mail.cli.show import STYLES, ago, console, fields, print_json, safe, table, text
from outbox_mail.cli.values import database, database_url, template_folders
from outbox_mail.errors import UsageError

if TYPE_CHECKING:
    from outbox_mail.operations.doctor import Check


class Kind(StrEnum):
    """The kinds of processes."""

    RELAY = "relay"
    WORKER = "worker"
    BEAT = "beat"


def doctor(json: options.Json = False) -> None:
    """Look at every part that mail needs on its way, and say what to do about what is wrong.

    Checks settings, provider, templates, attachment stores, broker, database, migrations, indexes, vacuum, long
    transactions, what waits and who is at work. Sends nothing. Exit code 1 when there is a problem.
    """
    from outbox_mail.operations.doctor import Level, examine
    from outbox_mail.settings import load_settings

    settings = load_settings()
    found: list[Check] = []
    out = console()
    for check in examine(settings):
        found.append(check)
        if not json:
            out.print(_finding(check))
    healthy = all(check.level is not Level.PROBLEM for check in found)
    if json:
        print_json({"ok": healthy, "checks": found})
    raise typer.Exit(0 if healthy else 1)


def _finding(check: Check) -> Any:
    from rich.text import Text

    sign = {"ok": "✓", "warning": "!", "problem": "✗"}[check.level]
    line = Text.assemble((f"{sign} ", STYLES[check.level]), (safe(check.name), "bold"), f": {safe(check.found)}")
    if check.advice:
        line.append(f"\n  → {safe(check.advice)}", style=STYLES[check.level])
    return line


def health(
    kinds: Annotated[
        list[Kind] | None, typer.Argument(metavar="[relay|worker|beat]...", help="Which must make progress.")
    ] = None,
    stale_seconds: Annotated[
        float | None, typer.Option(min=0.1, help="Default: OUTBOX_MAIL_HEALTH_STALE_SECONDS, 60.")
    ] = None,
    here: Annotated[
        bool, typer.Option("--here", help="Only processes of this machine or container: for its own health check.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Whether at least one process of each kind made progress lately; exit code 1 when not.

    Progress is what a process wrote to the database after a round of work, idle rounds included; that it merely
    runs does not count.
    """
    from outbox_mail.operations import processes

    if stale_seconds is None:
        from outbox_mail.settings import load_settings

        stale_seconds = load_settings().health_stale_seconds
    wanted = [kind.value for kind in kinds or Kind]
    with database() as connection:
        found = processes.health(connection, stale_seconds=stale_seconds, host=socket.gethostname() if here else None)
    healthy = found.healthy(wanted)
    if json:
        print_json({"ok": healthy, "stale_seconds": stale_seconds, "alive": found.alive, "stale": found.stale})
    else:
        rows = [
            (
                text(kind, "green" if found.alive.get(kind) else "bold red"),
                str(len(found.alive.get(kind, ()))),
                str(len(found.stale.get(kind, ()))),
                ago(min((p.idle_seconds for p in found.alive.get(kind, ())), default=None)),
            )
            for kind in wanted
        ]
        console().print(
            table(("kind", "at work", "without progress", "last progress"), rows, right=("at work", "without progress"))
        )
    raise typer.Exit(0 if healthy else 1)


def migrate(
    sql: Annotated[
        bool, typer.Option("--sql", help="Print the SQL for an empty database instead; needs none.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Only tell what is not run; exit code 1 when something.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Bring the database's tables to this version. Safe to start twice at once.

    Gives up, with nothing changed, rather than wait longer than 5 s for a table that others keep locked.
    """
    from outbox_mail.operations import migrate as migrations

    if sql:
        if check or json:
            raise UsageError("--sql", "it goes with no other option", "Leave the others out")
        sys.stdout.write(migrations.migration_sql())
        return
    if check:
        waiting = migrations.pending(database_url())
        if json:
            print_json({"pending": waiting})
        else:
            for revision in waiting:
                console().print(f"not run: {revision.id} {safe(revision.title)}")
            if not waiting:
                console().print("All migrations are run.")
        raise typer.Exit(1 if waiting else 0)
    done = migrations.migrate(database_url())
    if json:
        print_json({"applied": done})
        return
    for revision in done:
        console().print(f"run: {revision.id} {safe(revision.title)}")
    if not done:
        console().print("All migrations were run already.")


def preview(
    template: Annotated[str, typer.Argument(help="The template's name.")],
    parameters: Annotated[
        Path | None, typer.Option(help="A file with the parameters as a JSON object; - reads standard input.")
    ] = None,
    locale: Annotated[str | None, typer.Option(help="The reader's language: tr-TR.")] = None,
    html: Annotated[bool, typer.Option("--html", help="Print only the HTML body.")] = False,
    plain: Annotated[bool, typer.Option("--text", help="Print only the text body.")] = False,
    schema_version: Annotated[int, typer.Option(help="Which shape the parameters have.")] = 1,
    json: options.Json = False,
) -> None:
    """Render a template as it would be sent. Needs no database."""
    from outbox_mail.operations.preview import preview as render

    if html + plain + json > 1:
        raise UsageError("--html, --text, --json", "they exclude each other", "Give one of them")
    content = render(
        template_folders(), template, _read_parameters(parameters), locale=locale, schema_version=schema_version
    )
    if json:
        print_json(content)
    elif html or plain:
        body = content.html if html else content.text
        if body is None:
            raise UsageError("--html" if html else "--text", "the template has no such body", "Try the other one")
        sys.stdout.write(body)
    else:
        out = console()
        out.print(fields([("subject", content.subject), ("from", content.sender or "the default sender")]))
        for body in (content.text, content.html):
            if body is not None:
                out.print()
                out.print("\n".join(safe(line) for line in body.split("\n")), soft_wrap=True)


def _read_parameters(path: Path | None) -> str:
    if path is None:
        return "{}"
    try:
        return sys.stdin.read() if str(path) == "-" else path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError("parameters", f"{str(path)!r} can't be read ({error})", "Name a JSON file") from None


def version() -> None:
    """This version of outbox-mail."""
    from importlib.metadata import version as installed

    console().print(installed("outbox-mail"))
