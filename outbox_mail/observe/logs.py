"""Every log record of the process, whoever wrote it, as one line of JSON or for people."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any, Final, Literal, TextIO

import structlog
from structlog.typing import Processor

from outbox_mail.observe.escape import safe
from outbox_mail.observe.redact import redact, redact_text

# Written by this library and its logging, never by strangers.
_OWN_KEYS: Final = frozenset({"level", "logger", "timestamp"})
_QUIET: Final = ("fsspec", "asyncio", "urllib3", "botocore", "s3transfer")


def configure_logging(
    level: str = "INFO",
    log_format: Literal["json", "console"] = "json",
    stream: TextIO | None = None,
) -> None:
    """Send all records of standard ``logging`` to ``stream`` (standard error), one line each.

    Our own records have a static event name as ``event``, and fields; records of other libraries have their text
    there. Secrets, addresses and bodies are hidden by key and by shape in both, tracebacks included: a net under the
    rule that nothing of the kind is logged, not a reason to log it. Replaces the root logger's handlers.
    """
    out = stream or sys.stderr
    shared: list[Processor] = [
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    end: list[Processor] = [
        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
        structlog.processors.format_exc_info,
        _redacting,
    ]
    if log_format == "json":
        end.append(structlog.processors.JSONRenderer(default=str))
    else:
        end += [_escaping, structlog.dev.ConsoleRenderer(colors=out.isatty())]
    handler = logging.StreamHandler(out)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=end))
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    logging.captureWarnings(capture=True)


def _redacting(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for key, value in event.items():
        if key not in _OWN_KEYS:
            event[key] = redact_text(str(value)) if key in {"event", "exception"} else redact(value, key)
    return event


def _escaping(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """JSON escapes by itself; a terminal must be protected, and a line must stay one line but for a traceback."""
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = "\n".join(safe(line) for line in value.split("\n")) if key == "exception" else safe(value)
    return event
