"""Fills what follows from the code into the pages of docs/reference: ``python docs/generate.py``. A test compares them.

A page keeps its prose; what stands between ``<!-- generated: NAME -->`` and ``<!-- end -->`` is written here.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import typer

from outbox_mail import errors
from outbox_mail.cli.app import app
from outbox_mail.errors import ErrorClass, OutboxMailError
from outbox_mail.observe.catalogue import METRICS
from outbox_mail.observe.log_signals import LEVELS, event_name
from outbox_mail.observe.table import GAUGES
from outbox_mail.outbox import signals
from outbox_mail.outbox.signals import Signal
from outbox_mail.settings import ENV_PREFIX, Settings

REFERENCE: Final = Path(__file__).parent / "reference"
_BLOCK: Final = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_LOG_LEVELS: Final = {10: "debug", 20: "info", 30: "warning", 40: "error"}
_KINDS: Final = {bool: "true or false", int: "whole number", float: "number", str: "text"}
_BOUNDS: Final = {"gt": "above", "ge": "from", "lt": "below", "le": "to"}


def filled(page: str) -> str:
    """``page`` with each of its blocks as the code is now."""
    return _BLOCK.sub(lambda found: f"{found[1]}\n{BLOCKS[found[2]]()}\n\n{found[3]}", page)


def table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    headings = list(headings)
    lines = [headings, ["---"] * len(headings), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def prose(text: str | None) -> str:
    """A docstring in Markdown, one line for each paragraph."""
    paragraphs = inspect.cleandoc(text or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()).replace("``", "`") for paragraph in paragraphs)


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One argument or option of a command."""

    names: tuple[str, ...]
    option: bool
    required: bool
    default: Any
    choices: tuple[str, ...]
    meaning: str

    @property
    def usage(self) -> str:
        """As it stands in the usage line."""
        if self.option:
            return f"{self.names[0]} …"
        return self.names[0] if self.required or self.names[0].startswith("[") else f"[{self.names[0]}]"


def commands() -> str:
    """Every command with its arguments and options."""
    parts = []
    for command in app.registered_commands:
        if command.callback is None:
            continue
        name = command.name or command.callback.__name__
        parameters = [
            _parameter(given) for given in inspect.signature(command.callback, eval_str=True).parameters.values()
        ]
        needed = [parameter.usage for parameter in parameters if parameter.required or not parameter.option]
        parts += [f"## `outbox-mail {name}`", prose(command.callback.__doc__)]
        parts.append(f"```\n{' '.join(['outbox-mail', name, *needed, '[OPTIONS]'])}\n```")
        if parameters:
            parts.append(table(("Argument or option", "Default", "Meaning"), map(_row, parameters)))
    return "\n\n".join(parts)


def _parameter(given: inspect.Parameter) -> Parameter:
    kind, info = typing.get_args(given.annotation)
    option = isinstance(info, typer.models.OptionInfo)
    name = f"--{given.name.replace('_', '-')}" if option else str(info.metavar or given.name.upper())
    parts = [part for part in (kind, *typing.get_args(kind)) if inspect.isclass(part) and issubclass(part, StrEnum)]
    return Parameter(
        names=tuple(decl for decl in (info.default, *(info.param_decls or ())) if str(decl).startswith("-")) or (name,),
        option=option,
        required=given.default is inspect.Parameter.empty,
        default=given.default,
        choices=tuple(choice.value for part in parts for choice in part),
        meaning=info.help or "",
    )


def _row(parameter: Parameter) -> tuple[str, str, str]:
    given = parameter.default not in (None, False, "")
    default = "required" if parameter.required else f"`{parameter.default}`" if given else ""
    allowed = f" One of {_ticked(parameter.choices)}." if parameter.choices else ""
    names = _ticked(parameter.names if parameter.option else [parameter.usage])
    return names, default, parameter.meaning + allowed


def settings() -> str:
    """Every setting."""
    rows = (
        (
            f"`{ENV_PREFIX}{name.upper()}`",
            "required" if field.is_required() else _default(field.default),
            _kind(field.annotation, field.metadata),
            field.description or "",
        )
        for name, field in Settings.model_fields.items()
    )
    return table(("Variable", "Default", "Kind", "Meaning"), rows)


def _default(value: Any) -> str:
    if hasattr(value, "get_secret_value"):
        value = value.get_secret_value()
    if isinstance(value, tuple):
        value = ",".join(f"{item:g}" if isinstance(item, float) else str(item) for item in value)
    if isinstance(value, bool):
        value = str(value).lower()
    return f"`{value}`" if value not in (None, "") else ""


def _kind(annotation: Any, metadata: Iterable[Any]) -> str:
    origin = typing.get_origin(annotation)
    if origin is typing.Literal:
        return " or ".join(f"`{choice}`" for choice in typing.get_args(annotation))
    if origin in {types.UnionType, typing.Union}:
        return " or ".join(_kind(part, ()) for part in typing.get_args(annotation) if part is not types.NoneType)
    if origin is tuple:
        return "list"
    bounds = (
        f"{word} {bound:g}"
        for constraint in metadata
        for attribute, word in _BOUNDS.items()
        if (bound := getattr(constraint, attribute, None)) is not None
    )
    return " ".join([_KINDS.get(annotation, "URL, secret"), *bounds])


def rules() -> str:
    """What the settings' check of each other refuses, in its own words."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(Settings)))
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    checks = (node for node in functions if any("model_validator" in ast.dump(how) for how in node.decorator_list))
    raised = (call for check in checks for call in ast.walk(check) if isinstance(call, ast.Call))
    texts = ("".join(_literal(call.args[0])) for call in raised if ast.unparse(call.func) == "ValueError")
    return "\n".join(f"- {text.replace(' (…)', '')}" for text in texts)


def _literal(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.JoinedStr):
        for part in node.values:
            yield from _literal(part)
    else:
        yield str(node.value) if isinstance(node, ast.Constant) else "…"


def gauges() -> str:
    """The gauges of the table."""
    return table(
        ("Metric", "Labels", "Meaning"), ((f"`{gauge.name}`", _ticked(gauge.labels), gauge.meaning) for gauge in GAUGES)
    )


def metrics() -> str:
    """What is counted."""
    return table(
        ("Metric", "Kind", "Labels", "Meaning"),
        ((f"`{metric.name}`", metric.kind.value, _ticked(metric.labels), metric.meaning) for metric in METRICS),
    )


def _ticked(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def signal_kinds() -> str:
    """Every signal."""
    kinds = (kind for kind in vars(signals).values() if inspect.isclass(kind) and issubclass(kind, Signal))
    return table(
        ("Signal", "When", "Fields", "Logged as"),
        (
            (
                f"`{kind.__name__}`",
                prose(kind.__doc__),
                _ticked(field.name for field in dataclasses.fields(kind)),
                f"`{event_name(kind)}`, {_LOG_LEVELS[LEVELS[kind]]}",
            )
            for kind in kinds
            if kind is not Signal
        ),
    )


def error_classes() -> str:
    """The classes of failure with the words that stand beside them."""
    meanings = dict(re.findall(r'(\w+) = "\w+"\n\s+"""(.*?)"""', inspect.getsource(ErrorClass)))
    return table(("Class", "Meaning"), ((f"`{kind.value}`", meanings[kind.name]) for kind in ErrorClass))


def exceptions() -> str:
    """The one tree of errors."""
    kinds = (kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, OutboxMailError))
    rows = (
        (f"`{kind.__name__}`", f"`{kind.__mro__[1].__name__}`", prose(kind.__doc__).partition("\n\n")[0])
        for kind in kinds
    )
    return table(("Exception", "Is a", "Meaning"), rows)


BLOCKS: Final[dict[str, Callable[[], str]]] = {
    "commands": commands,
    "settings": settings,
    "rules": rules,
    "gauges": gauges,
    "metrics": metrics,
    "signals": signal_kinds,
    "error_classes": error_classes,
    "exceptions": exceptions,
}


if __name__ == "__main__":
    for path in sorted(REFERENCE.glob("*.md")):
        path.write_text(filled(path.read_text()))
