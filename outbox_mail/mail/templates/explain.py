"""From whatever a template raised to an error that says which template, file, line and name, and never a value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from jinja2.exceptions import (
    SecurityError,
    TemplateNotFound,
    TemplateRuntimeError,
    TemplateSyntaxError,
    UndefinedError,
)

from outbox_mail.errors import TemplateError
from outbox_mail.mail.templates.budget import LimitError
from outbox_mail.mail.templates.folders import TooComplexError, UnreadableFileError
from outbox_mail.mail.templates.values import MissingError

_QUOTED: Final = re.compile(r"'([^']*)'")
_ATTRIBUTE: Final = re.compile(r"access to attribute '([^']*)'")


def explain(error: Exception, template: str, sources: Mapping[str, str]) -> TemplateError:
    """The permanent ``TemplateError`` for ``error``; ``sources`` are the texts of the files by their shown names.

    Names that are not in the template's text were computed from parameters, so they are left out; so are the messages
    of Python's own exceptions, which may quote a value.
    """
    file, line = _place(error)
    source = sources.get(file or "", "")
    where = f"template {template!r}"
    if file is not None:
        where += f", {file}"
    if line is not None:
        where += f" line {line}"
    if isinstance(error, UndefinedError):
        name = error.name if isinstance(error, MissingError) else None
        shown = _as_written(name, source, line) if isinstance(name, str) and name else None
        missing = f"{shown!r} is missing" if shown else "a value that is looked up is missing"
        return TemplateError(
            "parameter_missing",
            f"{where}: {missing}. Pass it in parameters, or give it a default in the template",
        )
    return TemplateError(_code(error), f"{where}: {_problem(error, source)}. Mend the template and requeue the message")


def _code(error: Exception) -> str:
    if isinstance(error, (LimitError, RecursionError)):
        return "template_limit"
    return "template_forbidden" if isinstance(error, SecurityError) else "template_error"


def _problem(error: Exception, source: str) -> str:
    problem = f"a value does not fit what is done with it ({type(error).__name__})"
    if isinstance(error, RecursionError):
        problem = "it is nested too deeply, or includes itself"
    elif isinstance(error, TemplateNotFound):
        known = isinstance(error.name, str) and error.name in source
        problem = f"the file {error.name!r} is not there" if known else "a file that it includes is not there"
    elif isinstance(error, SecurityError):
        match = _ATTRIBUTE.search(str(error))
        what = f"the attribute {match[1]!r}" if match and match[1] in source else "something that it uses"
        problem = f"{what} is not open to templates"
    elif isinstance(error, (LimitError, TemplateSyntaxError, UnreadableFileError)) or (
        isinstance(error, TemplateRuntimeError) and all(part in source for part in _QUOTED.findall(str(error)))
    ):
        problem = str(error.message).rstrip(".")
    return problem


def _place(error: Exception) -> tuple[str | None, int | None]:
    if isinstance(error, TemplateSyntaxError):
        return error.filename, error.lineno
    if isinstance(error, (TooComplexError, UnreadableFileError)):
        return error.file, None
    file = line = None
    trace = error.__traceback__
    while trace is not None:
        template = trace.tb_frame.f_globals.get("__jinja_template__")
        if template is not None:
            file, line = template.filename, template.get_corresponding_lineno(trace.tb_lineno)
        trace = trace.tb_next
    return file, line


def _as_written(name: str, source: str, line: int | None) -> str | None:
    """``order.total`` for ``total``, as the line has it; None when the template's text does not have the name."""
    word = re.compile(rf"(?:\b[A-Za-z_][\w.]{{0,60}}\.)?\b{re.escape(name)}\b")
    lines = source.splitlines()
    if line is not None and line <= len(lines) and (match := word.search(lines[line - 1])):
        return match[0]
    # An expression over several lines is reported by its first.
    return name if word.search(source) else None
