"""Commands that change something: requeue, cancel, discard, pause, resume."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from outbox_mail.cli import options
from outbox_mail.cli.show import console, messages, print_json, safe, when
from outbox_mail.cli.values import database, entity, moment, who
from outbox_mail.errors import OutboxMailError, UsageError
from outbox_mail.operations.scope import Scope

if TYPE_CHECKING:
    from typing import Any
    from uuid import UUID

    from psycopg import Connection

    from outbox_mail.operations.actions import Action
    from outbox_mail.operations.filters import Filter

Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Messages by id, instead of a filter.")]
Most = Annotated[int, typer.Option("--limit", help="How many of those that the filter finds, at most; oldest first.")]


def requeue(
    ids: Ids = None,
    *,
    reason: options.Reason,
    by: options.By = None,
    template: options.Template = None,
    tag: options.Tag = None,
    to: options.To = None,
    error_code: options.ErrorCode = None,
    entity_: Annotated[str | None, typer.Option("--entity", help="Only of this business entity: order:42.")] = None,
    since: options.Since = None,
    until: options.Until = None,
    limit: Most = 100,
    yes: options.Yes = False,
    json: options.Json = False,
) -> None:
    """Send FAILED messages again, by id or by filter.

    Each becomes PENDING, due now, with a fresh set of attempts. Addresses that were accepted are not mailed again.
    """
    from outbox_mail.operations.actions import REQUEUE

    wanted = _filter(template, tag, to, error_code, entity_, since, until)
    _do(REQUEUE, ids or [], wanted, by=by, reason=reason, limit=limit, yes=yes, json=json)


def cancel(
    ids: Ids = None,
    *,
    reason: options.Reason,
    by: options.By = None,
    template: options.Template = None,
    tag: options.Tag = None,
    to: options.To = None,
    entity_: Annotated[str | None, typer.Option("--entity", help="Only of this business entity: order:42.")] = None,
    since: options.Since = None,
    until: options.Until = None,
    limit: Most = 100,
    yes: options.Yes = False,
    json: options.Json = False,
) -> None:
    """Don't send PENDING messages: they end FAILED, coded cancelled. What is being sent can't be called back."""
    from outbox_mail.operations.actions import CANCEL

    wanted = _filter(template, tag, to, None, entity_, since, until)
    _do(CANCEL, ids or [], wanted, by=by, reason=reason, limit=limit, yes=yes, json=json)


def discard(
    ids: Ids = None,
    *,
    reason: options.Reason,
    by: options.By = None,
    template: options.Template = None,
    tag: options.Tag = None,
    to: options.To = None,
    error_code: options.ErrorCode = None,
    entity_: Annotated[str | None, typer.Option("--entity", help="Only of this business entity: order:42.")] = None,
    since: options.Since = None,
    until: options.Until = None,
    limit: Most = 100,
    yes: options.Yes = False,
    json: options.Json = False,
) -> None:
    """Put FAILED messages aside: seen, and not to be sent.

    They stay FAILED, coded discarded, with what they failed of behind your reason, until retention removes them.
    """
    from outbox_mail.operations.actions import DISCARD

    wanted = _filter(template, tag, to, error_code, entity_, since, until)
    _do(DISCARD, ids or [], wanted, by=by, reason=reason, limit=limit, yes=yes, json=json)


def _filter(
    template: str | None,
    tag: str | None,
    to: str | None,
    error_code: str | None,
    entity_: str | None,
    since: str | None,
    until: str | None,
) -> Filter | None:
    from outbox_mail.operations.filters import Filter

    wanted = Filter(
        template=template,
        tag=tag,
        recipient=to,
        error_code=error_code,
        entity=entity(entity_),
        created_since=moment("since", since),
        created_until=moment("until", until),
    )
    return None if wanted == Filter() else wanted


def _do(
    action: Action,
    ids: list[str],
    wanted: Filter | None,
    *,
    by: str | None,
    reason: str,
    limit: int,
    yes: bool,
    json: bool,
) -> None:
    from outbox_mail.operations.actions import act_on_all, find
    from outbox_mail.operations.filters import message_id

    if bool(ids) == bool(wanted):
        raise UsageError("messages", "give ids or a filter, not both and not neither", "See --help")
    name = who(by)
    with database() as connection:
        if ids:
            _one_by_one(connection, action, [message_id(id_) for id_ in ids], by=name, reason=reason, json=json)
            return
        found = find(connection, action, wanted, limit=limit) if wanted else []
        if found and not yes:
            _confirm(f"{action.name} {messages(len(found))}{' (more match)' if len(found) == limit else ''}?")
        done = act_on_all(connection, action, found, by=name, reason=reason)
    if json:
        print_json({"action": action.name, "found": len(found), "done": done, "refused": []})
        return
    console().print(f"{messages(len(done))} {action.done}.")
    if len(done) < len(found):
        console().print(f"{len(found) - len(done)} changed meanwhile and were left.")


def _one_by_one(
    connection: Connection[Any], action: Action, ids: list[UUID], *, by: str, reason: str, json: bool
) -> None:
    from outbox_mail.operations.actions import act

    done, refused = [], []
    for id_ in ids:
        try:
            act(connection, action, id_, by=by, reason=reason)
        except UsageError:
            raise
        except OutboxMailError as error:
            refused.append({"id": id_, "reason": str(error)})
        else:
            done.append(id_)
    if json:
        print_json({"action": action.name, "found": len(ids), "done": done, "refused": refused})
    elif done:
        console().print(f"{messages(len(done))} {action.done}." if len(done) > 1 else f"{done[0]} {action.done}.")
    for entry in refused:
        sys.stderr.write(f"outbox-mail: {safe(entry['id'])}: {safe(entry['reason'])}\n")
    if refused:
        raise typer.Exit(1)


def _confirm(question: str) -> None:
    if not sys.stdin.isatty():
        raise UsageError("--yes", "nobody can be asked here", f"Add --yes to {question.rstrip('?')}")
    typer.confirm(question, abort=True, err=True)


ScopeArgument = Annotated[Scope, typer.Argument(help="What: everything, or one template, provider, tag, ordering key.")]
Value = Annotated[str, typer.Argument(help="Which one; none for all.")]


def pause(
    scope: ScopeArgument,
    value: Value = "",
    *,
    reason: options.Reason,
    until: Annotated[
        str | None, typer.Option(help="Lifted by itself: in 30m, 2h, or at 2026-07-01T09:30. Default: never.")
    ] = None,
    by: options.By = None,
    json: options.Json = False,
) -> None:
    """Hold messages back without failing them: all, one template, provider, tag or ordering key.

    Mails being sent are finished. Give a reason that begins with maintenance to mute the alerts that ship with this.
    """
    from outbox_mail.operations import holds

    with database() as connection:
        hold = holds.pause(connection, scope, value, by=who(by), reason=reason, until=moment("until", until))
    if json:
        print_json(hold)
        return
    ends = f"until {when(hold.until)} UTC" if hold.until else "until it is resumed"
    console().print(f"{safe(holds.target(scope, value))} is paused {ends}.", soft_wrap=True)


def resume(scope: ScopeArgument, value: Value = "", *, json: options.Json = False) -> None:
    """Lift a hold and free the messages that it parked."""
    from outbox_mail.operations import holds

    with database() as connection:
        freed = holds.resume(connection, scope, value)
    if json:
        print_json({"scope": scope, "value": value, "freed": freed})
        return
    console().print(f"{safe(holds.target(scope, value))} goes on; {messages(freed)} freed.", soft_wrap=True)
