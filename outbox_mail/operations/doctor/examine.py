"""All checks in an order in which a person would look."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import psycopg

from outbox_mail.operations.doctor import database, flow, parts
from outbox_mail.operations.doctor.check import Check, problem
from outbox_mail.settings import Settings

Findings = Check | list[Check]

_CONNECT_SECONDS = 10
_STATEMENT_SECONDS = 10


def examine(settings: Settings) -> Iterator[Check]:
    """Yield each finding as it is made. Changes nothing, sends nothing, and never raises for what it finds."""
    for check in parts.CHECKS:
        yield from _made(check.__name__, partial(check, settings))
    try:
        connection = psycopg.connect(
            settings.database_url.get_secret_value(),
            autocommit=True,
            prepare_threshold=None,
            connect_timeout=_CONNECT_SECONDS,
            application_name="outbox-mail doctor",
        )
    except psycopg.Error as error:
        first = str(error).strip().partition("\n")[0]
        yield problem(
            "database",
            first,
            "Start PostgreSQL or mend OUTBOX_MAIL_DATABASE_URL. Producers can't write either meanwhile",
        )
        return
    with connection:
        for ask in database.CHECKS:
            yield from _made(ask.__name__, partial(_asked, connection, ask))
        for look in flow.CHECKS:
            yield from _made(look.__name__, partial(_asked, connection, look, settings))
        yield from _made("listen", partial(flow.listen, connection, settings))


def _asked(connection: psycopg.Connection[Any], check: Callable[..., Findings], *arguments: Any) -> Findings:
    """In a transaction, because only there a timeout does not outlive the question behind a transaction pooler."""
    with connection.transaction():
        connection.execute(f"SET LOCAL statement_timeout = '{_STATEMENT_SECONDS}s'")
        return check(connection, *arguments)


def _made(name: str, check: Callable[[], Findings]) -> list[Check]:
    name = name.replace("_", " ")
    try:
        found = check()
    except psycopg.Error as error:
        first = str(error).strip().partition("\n")[0]
        return [problem(name, f"could not be asked: {first}", "Mend the findings above first")]
    except Exception as error:  # noqa: BLE001 - one check's surprise must not hide the others
        advice = "Report this: it is a fault of outbox-mail"
        return [problem(name, f"could not be checked ({type(error).__name__})", advice)]
    return found if isinstance(found, list) else [found]
