"""What templates may see and do: everything that is not listed here is forbidden.

Parameters come from JSON, so the list is short. Jinja2's own sandbox goes the other way: it forbids names that start
with an underscore, and a few dangerous ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, cast

from jinja2 import StrictUndefined
from jinja2.exceptions import TemplateRuntimeError, UndefinedError
from jinja2.runtime import BlockReference, LoopContext, Macro, Undefined
from jinja2.utils import Cycler, Namespace, missing
from markupsafe import Markup

DATA: Final = (str, int, float, list, tuple, dict, range, Undefined, type(None))
"""What can be shown, and passed to filters."""

_SEQUENCE_METHODS: Final = frozenset({"count", "index"})
# Without those that search from the end: CPython needs time with the square of the length for them.
_TEXT_METHODS: Final = frozenset(
    """
    capitalize casefold center count endswith find format index isalnum isalpha isascii isdecimal isdigit islower
    isnumeric isspace istitle isupper join ljust lower lstrip partition removeprefix removesuffix replace rjust
    rstrip split splitlines startswith strip swapcase title upper zfill
    """.split()  # noqa: SIM905 - forty quoted words are hard to read
)
_LOOP: Final = frozenset(
    """
    changed cycle depth depth0 first index index0 last length nextitem previtem revindex revindex0
    """.split()  # noqa: SIM905 - as above
)
_ATTRIBUTES: Final[Mapping[type, frozenset[str]]] = {
    str: _TEXT_METHODS,
    Markup: _TEXT_METHODS,
    dict: frozenset({"get", "items", "keys", "values"}),
    list: _SEQUENCE_METHODS,
    tuple: _SEQUENCE_METHODS,
    LoopContext: _LOOP,
    Cycler: frozenset({"current", "next", "reset"}),
    Macro: frozenset({"name"}),
    BlockReference: frozenset({"super"}),
}
_GROUP: Final = frozenset({"grouper", "list"})


def may_reach(obj: object, attribute: str) -> bool:
    """Whether ``obj.attribute`` is listed; of namespaces and imported templates, what templates put there is."""
    if attribute.startswith("_"):
        return False
    kind = type(obj)
    if kind.__name__ == "_GroupTuple":
        return attribute in _GROUP
    if kind in _ATTRIBUTES:
        return attribute in _ATTRIBUTES[kind]
    return isinstance(obj, Namespace) or kind.__name__ == "TemplateModule"


class MissingError(UndefinedError):
    """Something that is not there was used. ``name`` is what was looked up."""

    def __init__(self, name: object, message: str | None = None) -> None:
        super().__init__(message)
        self.name = name


class Missing(StrictUndefined):
    """What a name that is not there gives: it may be tested and given a default, and nothing else."""

    __slots__ = ()

    def __init__(
        self,
        hint: str | None = None,
        obj: Any = missing,
        name: str | None = None,
        exc: type[TemplateRuntimeError] = UndefinedError,
    ) -> None:
        super().__init__(hint, obj, name, exc)
        if exc is UndefinedError:
            self._undefined_exception = cast("type[TemplateRuntimeError]", partial(MissingError, name))


class OpaqueNamespace(Namespace):
    """Jinja2's ``namespace``, which would write out everything in it, over and over, when shown."""

    def __repr__(self) -> str:
        return "<namespace>"


class CheckedMethod:
    """A method of text whose arguments are checked before it runs."""

    def __init__(self, function: Callable[..., str]) -> None:
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> str:
        return self._function(*args, **kwargs)
