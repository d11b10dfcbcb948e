"""The entry point: runs the command, and turns errors into one line on standard error and an exit code."""

from __future__ import annotations

import os
import sys
from typing import Final

from outbox_mail.cli.show import safe
from outbox_mail.errors import ConfigurationError, OutboxMailError, UsageError

OK: Final = 0
NOT_AS_IT_SHOULD_BE: Final = 1
USAGE: Final = 2
TRACEBACK_VARIABLE: Final = "OUTBOX_MAIL_TRACEBACK"


def run() -> None:
    """The command ``outbox-mail``. Exits with 0 when all is well, 1 when something is not as it should be, 2 when the
    arguments or settings can't be used.
    """
    try:
        from outbox_mail.cli.app import app
    except ModuleNotFoundError as error:
        sys.exit(_said(f"{error.name} is not installed. Install it: pip install 'outbox-mail[service]'", USAGE))
    try:
        app()
    except Exception as error:
        if os.environ.get(TRACEBACK_VARIABLE):
            raise
        sys.exit(_explain(error))


def _explain(error: Exception) -> int:
    if isinstance(error, UsageError | ConfigurationError):
        return _said(str(error), USAGE)
    if isinstance(error, OutboxMailError):
        return _said(str(error), NOT_AS_IT_SHOULD_BE)
    first = str(error).strip().partition("\n")[0]
    if (driver := sys.modules.get("psycopg")) is not None and isinstance(error, driver.Error):
        if getattr(error, "sqlstate", None) in {"42P01", "42703"}:
            return _said(f"{first}. The tables are not this version's: run outbox-mail migrate", NOT_AS_IT_SHOULD_BE)
        return _said(f"database: {first}", NOT_AS_IT_SHOULD_BE)
    if isinstance(error, ModuleNotFoundError):
        return _said(f"{error.name} is not installed. Install it: pip install 'outbox-mail[service]'", USAGE)
    return _said(
        f"unexpected {type(error).__name__}: {first}. Set {TRACEBACK_VARIABLE}=1 to see where, and report it",
        NOT_AS_IT_SHOULD_BE,
    )


def _said(message: str, code: int) -> int:
    sys.stderr.write(f"outbox-mail: {safe(message)}\n")
    return code
