"""Jinja2's filters and tests, each counted, and checked beforehand where it can make much of little.

Left out: ``random`` and ``lipsum`` (a row and a template always give the same mail) and ``pprint`` (for debugging).
What Jinja2 gives piece by piece (``map``, ``select``, ``batch``, …) is a list here, made and measured at once.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

from jinja2.filters import FILTERS
from jinja2.tests import TESTS

from outbox_mail.mail.templates.budget import LimitError
from outbox_mail.mail.templates.sandbox import BoundedEnvironment
from outbox_mail.mail.templates.values import DATA

_LEFT_OUT: Final = frozenset({"pprint", "random"})
_CONTEXTS: Final = frozenset({"context", "environment", "eval_ctx"})

Arguments = Mapping[str, Any]
"""A filter's arguments by the names that Jinja2 gives its parameters. What is of the wrong type Jinja2 refuses."""


def install(environment: BoundedEnvironment) -> None:
    """Replace the environment's filters and tests by counted ones."""
    environment.filters = {
        name: _counted(environment, name, function) for name, function in FILTERS.items() if name not in _LEFT_OUT
    }
    tests: dict[str, Any] = dict(TESTS)
    environment.tests = {name: _counted_test(environment, function) for name, function in tests.items()}


def _counted(environment: BoundedEnvironment, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    # Jinja2 puts the context before the value for those that are marked so.
    first = 1 if hasattr(function, "jinja_pass_arg") else 0
    check = _CHECKS.get(name)
    limits = _LIMITS.get(name, {})
    # Some are marked only by a wrapper, whose signature is that of the filter without the context.
    names = [name for name in inspect.signature(function).parameters if name not in _CONTEXTS]
    checked = bool(check or limits)
    slow, measured, require_data = environment.meter.slow, environment.measured, environment.require_data

    @functools.wraps(function)
    def counted(*args: Any, **kwargs: Any) -> Any:
        slow()
        for value in args[first:]:
            if not isinstance(value, DATA):
                require_data(value)
        for value in kwargs.values():
            require_data(value)
        if name == "format":
            environment.check_printf(args[first], kwargs or list(args[first + 1 :]))
        elif checked:
            arguments = dict(zip(names, args[first:], strict=False)) | kwargs
            for parameter, limit in limits.items():
                _require_small(parameter, arguments.get(parameter), limit)
            if check is not None:
                check(environment, arguments)
        return measured(function(*args, **kwargs))

    return counted


def _counted_test(environment: BoundedEnvironment, function: Callable[..., Any]) -> Callable[..., Any]:
    slow = environment.meter.slow

    @functools.wraps(function)
    def counted(*args: Any, **kwargs: Any) -> Any:
        slow()
        return function(*args, **kwargs)

    return counted


def _require_small(parameter: str, value: Any, limit: int) -> None:
    size = abs(value) if isinstance(value, (int, float)) else len(value) if isinstance(value, (str, list)) else 0
    if size > limit:
        raise LimitError(f"a filter's {parameter!r} is larger than {limit}")


_LIMITS: Final[Mapping[str, Mapping[str, int]]] = {
    "batch": {"linecount": 10_000},
    "center": {"width": 1000},
    "groupby": {"attribute": 100},
    "indent": {"width": 1000},
    "join": {"attribute": 100},
    "round": {"precision": 30},
    "slice": {"slices": 1000},
    "sort": {"attribute": 100},
    "striptags": {"value": 200_000},
    "tojson": {"indent": 8},
    "unique": {"attribute": 100},
    # The time for these rises with the square of the length.
    "urlize": {"value": 10_000, "target": 100, "rel": 100, "extra_schemes": 10},
    "wordwrap": {"s": 200_000, "wrapstring": 16},
}
"""How large a number, or how long a text, an argument may be."""


def _number(_env: BoundedEnvironment, arguments: Arguments) -> None:
    if isinstance(arguments.get("value"), str):
        _require_small("value", arguments["value"], 400)


def _sum(_env: BoundedEnvironment, arguments: Arguments) -> None:
    # Lists would be added up with the square of their number.
    if not isinstance(arguments.get("start", 0), (int, float)):
        raise LimitError("only numbers can be summed up")


def _wordwrap(_env: BoundedEnvironment, arguments: Arguments) -> None:
    # The time rises with the square of the longest word.
    if isinstance(text := arguments.get("s"), str) and max(map(len, text.split()), default=0) > 2000:
        raise LimitError("a word to wrap is longer than 2000 characters")


def _indent(env: BoundedEnvironment, arguments: Arguments) -> None:
    width = arguments.get("width", 4)
    if isinstance(text := arguments.get("s"), str):
        each = len(width) if isinstance(width, str) else width if isinstance(width, int) else 0
        env.meter.fits(len(text) + (text.count("\n") + 1) * max(each, 0))


def _replace(env: BoundedEnvironment, arguments: Arguments) -> None:
    text, old, new, count = (arguments.get(name) for name in ("s", "old", "new", "count"))
    if isinstance(text, str) and isinstance(old, str) and isinstance(new, str):
        env.check_replace(text, old, new, count if isinstance(count, int) else None)


def _join(env: BoundedEnvironment, arguments: Arguments) -> None:
    value, separator = arguments.get("value"), arguments.get("d", "")
    if isinstance(value, (str, list, tuple, dict, range)):
        env.check_join(separator if isinstance(separator, str) else str(separator), value)


_CHECKS: Final[Mapping[str, Callable[[BoundedEnvironment, Arguments], None]]] = {
    "float": _number,
    "indent": _indent,
    "int": _number,
    "join": _join,
    "replace": _replace,
    "sum": _sum,
    "wordwrap": _wordwrap,
}
