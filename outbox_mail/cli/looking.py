"""Commands that only look: status, list, show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outbox_mail.cli import options
from outbox_mail.cli.show import STYLES, ago, console, fields, print_json, safe, table, text, when
from outbox_mail.cli.values import database, entity, moment
from outbox_mail.outbox.status import Status

if TYPE_CHECKING:
    from rich.console import RenderableType

    from outbox_mail.operations.overview import Overview
    from outbox_mail.outbox.census import Count


def status(json: options.Json = False) -> None:
    """How the outbox stands: counts, the oldest that waits, failures, holds, processes.

    Cheap however large the table is. Beyond 100,000 rows of a kind the count is an estimate, marked with ~.
    """
    from outbox_mail.operations.overview import overview

    with database() as connection:
        found = overview(connection)
    if json:
        print_json(_as_json(found))
        return
    out = console()
    counts = found.counts
    out.print(
        table(
            ("status", "messages", ""),
            [
                (text(name, STYLES[name]), _number(number), text(_pending(found) if name == Status.PENDING else ""))
                for name, number in counts.by_status().items()
            ],
            right=("messages",),
        )
    )
    out.print(
        fields(
            [
                ("oldest due PENDING", ago(found.oldest_due_pending_age_seconds)),
                ("oldest SENDING", ago(found.oldest_sending_age_seconds)),
            ]
        )
    )
    if found.failed_by_code:
        out.print()
        rows = [(code, str(number)) for code, number in found.failed_by_code.items()]
        out.print(table(("newest FAILED by code", "messages"), rows, right=("messages",)))
    if found.holds:
        out.print()
        out.print(
            table(
                ("paused", "by", "since", "until", "reason"),
                [
                    (
                        text(f"{hold.scope} {hold.value}".strip(), "yellow" if hold.active else "dim"),
                        hold.held_by,
                        when(hold.created_at),
                        when(hold.until),
                        hold.reason,
                    )
                    for hold in found.holds
                ],
            )
        )
    out.print()
    out.print(
        table(
            ("process", "doing", "last progress", "up since"),
            [
                (process.name, process.doing, f"{ago(process.idle_seconds)} ago", when(process.started_at))
                for process in found.processes
            ],
        )
        if found.processes
        else text("No relay, worker or beat has reported.", "red")
    )


def _as_json(found: Overview) -> dict[str, Any]:
    counts = found.counts
    return {
        "at": found.at,
        "messages": {name.value: number for name, number in counts.by_status().items()},
        "pending": counts.pending(),
        "oldest_due_pending_age_seconds": found.oldest_due_pending_age_seconds,
        "oldest_sending_age_seconds": found.oldest_sending_age_seconds,
        "failed_by_code": found.failed_by_code,
        "holds": found.holds,
        "processes": found.processes,
    }


def _number(count: Count) -> RenderableType:
    return f"{'~' if count.estimated else ''}{count.rows:,}"


def _pending(found: Overview) -> str:
    counts = found.counts
    parts = (
        (counts.due, "due"),
        (counts.scheduled, "for later"),
        (counts.out, "at the broker"),
        (counts.countdown, "in a countdown"),
        (counts.in_line, "behind one of their ordering key"),
        (counts.held, "held"),
    )
    return ", ".join(f"{_number(count)} {word}" for count, word in parts if count.rows)


def list_(
    status: Annotated[Status | None, typer.Option(case_sensitive=False, help="Only with this status.")] = None,
    template: options.Template = None,
    tag: options.Tag = None,
    to: options.To = None,
    error_code: options.ErrorCode = None,
    ordering_key: options.OrderingKey = None,
    entity_: Annotated[str | None, typer.Option("--entity", help="Only of this business entity: order:42.")] = None,
    since: options.Since = None,
    until: options.Until = None,
    limit: Annotated[int, typer.Option(help="How many, at most.")] = 50,
    after: Annotated[str | None, typer.Option(help="The next page: what the page before told.")] = None,
    json: options.Json = False,
) -> None:
    """Find messages.

    PENDING come by when they are due, SENDING by who was claimed first, SENT and FAILED the latest first. In a large
    table give a status or an entity: the other conditions have no index of their own.
    """
    from outbox_mail.operations.filters import Filter
    from outbox_mail.operations.messages import list_messages

    wanted = Filter(
        status=status,
        template=template,
        tag=tag,
        recipient=to,
        error_code=error_code,
        ordering_key=ordering_key,
        entity=entity(entity_),
        created_since=moment("since", since),
        created_until=moment("until", until),
    )
    with database() as connection:
        page = list_messages(connection, wanted, limit=limit, after=after)
    if json:
        print_json({"messages": page.messages, "next": page.next})
        return
    out = console()
    if not page.messages:
        out.print("No message is so.")
        return
    out.print(
        table(
            ("id", "status", "template", "to", "created", "when", "failed", "error"),
            [
                (
                    str(row["id"]),
                    text(row["status"], STYLES[row["status"]]),
                    row["template"],
                    _recipients(row["to"]),
                    when(row["created_at"]),
                    _moment(row),
                    str(row["attempt_count"] or ""),
                    row["error_code"] or "",
                )
                for row in page.messages
            ],
            right=("failed",),
        )
    )
    if page.next:
        out.print(f"More: --after {page.next}", soft_wrap=True)


def _recipients(to: list[str]) -> str:
    return to[0] + (f" +{len(to) - 1}" if len(to) > 1 else "") if to else "–"


def _moment(row: Any) -> str:
    from outbox_mail.outbox.columns import TURN_HOLD

    if row["hold_id"] is not None:
        return "held" if row["hold_id"] > TURN_HOLD else "in line"
    stamp = {Status.PENDING: "due_at", Status.SENDING: "locked_at", Status.SENT: "sent_at", Status.FAILED: "failed_at"}
    column = stamp[Status(row["status"])]
    return f"{column.removesuffix('_at')} {when(row[column])}"


def show(
    id_: Annotated[str, typer.Argument(metavar="ID", help="The message's id.")],
    parameters: Annotated[
        bool, typer.Option("--parameters", help="With the parameters' values, which may be personal.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Everything of one message: columns, failed attempts, hold. Looks into the archive, too."""
    from outbox_mail.operations import messages
    from outbox_mail.operations.filters import message_id

    with database() as connection:
        found = messages.show(connection, message_id(id_), parameters=parameters)
    if json:
        print_json(found)
        return
    out = console()
    out.print(fields(_columns(found)))
    if found["attempts"]:
        out.print()
        out.print(
            table(
                ("failed attempt", "claim", "class", "code", "provider", "reason"),
                [
                    (
                        when(attempt["failed_at"]),
                        str(attempt["claim"]),
                        attempt["error_class"],
                        attempt["error_code"],
                        attempt["provider"] or "",
                        attempt["error_message"],
                    )
                    for attempt in found["attempts"]
                ],
                right=("claim",),
            )
        )


def _columns(found: dict[str, Any]) -> Iterator[tuple[str, RenderableType]]:
    for name, value in found.items():
        if name == "attempts" or value is None or value in ([], {}):
            continue
        if name == "status":
            yield name, text(value, STYLES.get(value, ""))
        elif name.endswith("_at"):
            yield name, f"{when(value)} UTC"
        elif isinstance(value, list) and all(isinstance(item, str) for item in value):
            yield name, _lines(value)
        elif isinstance(value, dict | list):
            yield name, _structure(value)
        else:
            yield name, str(value)


def _lines(values: list[str]) -> RenderableType:
    from rich.text import Text

    return Text("\n".join(safe(value) for value in values))


def _structure(value: Any) -> RenderableType:
    import json

    from rich.text import Text

    from outbox_mail.cli.show import one_line_json

    pretty = json.dumps(json.loads(one_line_json(value)), indent=2, ensure_ascii=False)
    return Text("\n".join(safe(line) for line in pretty.split("\n")))
