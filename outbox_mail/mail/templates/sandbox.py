"""Jinja2 for templates that nobody vouches for: no way out of the data, no way to use up the worker."""

from __future__ import annotations

import re
import types
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from functools import lru_cache, partial
from string import Formatter
from typing import Any, Final

from jinja2 import nodes
from jinja2.exceptions import TemplateRuntimeError
from jinja2.runtime import BlockReference, Context, LoopContext, Macro, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedEscapeFormatter, SandboxedFormatter
from jinja2.utils import Cycler, Joiner
from markupsafe import Markup, escape

from outbox_mail.mail.templates.budget import LimitError, Limits, Meter
from outbox_mail.mail.templates.codegen import MeteredCodeGenerator
from outbox_mail.mail.templates.values import DATA, CheckedMethod, Missing, OpaqueNamespace, may_reach

_PLAIN: Final = frozenset({int, float, bool, type(None)})
_LAZY: Final = (Iterator, ItemsView, KeysView, ValuesView)
_ITERATED: Final = (Cycler, LoopContext, Undefined)
_CALLABLE: Final = (Macro, BlockReference, LoopContext, Joiner, Undefined, CheckedMethod)
_IMPLICIT: Final = frozenset({"_loop_vars", "_block_vars", "caller"})
_PADDING: Final = frozenset({"center", "ljust", "rjust", "zfill"})
_LONGEST_PADDING: Final = 1000
_MOST_BITS: Final = 13_000
"""About as many digits as Python is willing to write."""
# Width and precision of a format: the numbers that make it long.
_PRINTF: Final = re.compile(r"%(?:\([^)]{0,100}\))?[-+ #0]*(\*|\d+)?(?:\.(\*|\d+))?")
_LONG_NUMBER: Final = re.compile(r"\d{4,}")


def _fields(template: str) -> int:
    fields = 0
    for match in _PRINTF.finditer(template):
        fields += 1
        for number in match.groups():
            if number is not None and (number == "*" or len(number) > 3):
                raise LimitError("it formats wider than 999 characters")
    return fields


_cached_fields: Final = lru_cache(maxsize=256)(_fields)


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Compiles and runs templates within the bounds of its meter. An overlay shares the meter."""

    code_generator_class = MeteredCodeGenerator
    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, limits: Limits, **options: Any) -> None:
        # Constants are not folded while compiling: that would happen without a meter.
        self.meter = Meter(limits)
        self.shown = self.meter.counting(self._weighed)
        super().__init__(undefined=Missing, optimized=False, finalize=self.shown, **options)
        self.tick = self.meter.tick
        self.slow = self.meter.slow
        # Typed as a method of str, and called by compiled templates for what macros and blocks gather.
        self.__dict__["concat"] = self.meter.joined
        self.globals = {
            "cycler": Cycler,
            "dict": dict,
            "joiner": Joiner,
            "namespace": OpaqueNamespace,
            "range": self._range,
        }
        self._functions = tuple(self.globals.values())

    # What may be shown and made.

    def _weighed(self, value: Any) -> Any:
        if type(value) not in _PLAIN:
            self.require_data(value)
            if not isinstance(value, Undefined):
                self.meter.weigh(value)
        return value

    @staticmethod
    def require_data(value: Any) -> None:
        """Raise unless ``value`` is data: text, a number, a list, …, and not a method, a macro or a loop."""
        if not isinstance(value, DATA):
            raise TemplateRuntimeError(f"a {type(value).__name__} is no text: its parentheses may be missing")

    def measured(self, value: Any) -> Any:
        """``value``, when it is not too large; its cost is taken. What would be made step by step is made now."""
        kind = type(value)
        if kind is str or kind is Markup:
            self.meter.fits(len(value))
        elif kind in _PLAIN:
            if kind is int and value.bit_length() > _MOST_BITS:
                raise LimitError("it makes a number that is too large")
        elif isinstance(value, (list, tuple, dict)):
            self.meter.weigh(value)
        elif isinstance(value, _LAZY) and not isinstance(value, _ITERATED):
            items = list(value)
            self.meter.weigh(items)
            return items
        return value

    def concatenate(self, eval_ctx: nodes.EvalContext, parts: tuple[Any, ...]) -> str:
        """``a ~ b``: text of all parts. Where HTML is escaped and one of them is safe, the others are escaped."""
        texts = [part if isinstance(part, str) else str(self.shown(part)) for part in parts]
        self.meter.fits(sum(map(len, texts)))
        if eval_ctx.autoescape and any(isinstance(part, Markup) for part in parts):
            return Markup("").join(map(escape, texts))
        return "".join(texts)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """``+``, ``*``, ``**`` and ``%`` can make much of little."""
        self.tick()
        if operator == "+":
            if isinstance(left, (str, list, tuple)) and isinstance(right, (str, list, tuple)):
                self.meter.fits(len(left) + len(right))
        elif operator == "*":
            self._check_product(left, right)
        elif operator == "**":
            if isinstance(left, int) and isinstance(right, int) and left.bit_length() * right > _MOST_BITS:
                raise LimitError("it makes a number that is too large")
        elif isinstance(left, str):
            self.check_printf(left, right)
        return self.measured(super().call_binop(context, operator, left, right))

    def _check_product(self, left: Any, right: Any) -> None:
        for value, count in ((left, right), (right, left)):
            if isinstance(value, (str, list, tuple)) and isinstance(count, int):
                self.meter.fits(len(value) * max(count, 0))
                return
        if isinstance(left, int) and isinstance(right, int) and left.bit_length() + right.bit_length() > _MOST_BITS:
            raise LimitError("it makes a number that is too large")

    def check_printf(self, template: Any, values: Any) -> None:
        """Raise when ``template % values`` would be too large."""
        if not isinstance(template, str):
            return
        fields = _cached_fields(template) if len(template) < 100 else _fields(template)
        if any(type(value) not in _PLAIN for value in values) if isinstance(values, list) else True:
            self.meter.weigh(values)
        if isinstance(values, Mapping):
            # A value may be named by many fields.
            self.meter.fits(fields * sum(len(value) for value in values.values() if hasattr(value, "__len__")))

    def _range(self, *bounds: int) -> range:
        made = range(*bounds)
        if len(made) > self.meter.limits.items:
            raise LimitError(f"it makes a range of more than {self.meter.limits.items} numbers")
        return made

    # What may be reached and called.

    def getattr(self, obj: Any, attribute: str) -> Any:
        """``obj.attribute``. Of an object from JSON it is the value with that key, whatever the key is called."""
        if type(obj) is dict and attribute in obj:
            return obj[attribute]
        return super().getattr(obj, attribute)

    def getmethod(self, obj: Any, attribute: str) -> Any:
        """``obj.attribute`` before parentheses."""
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """``obj[argument]``."""
        self.slow()
        return super().getitem(obj, argument)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:  # noqa: ARG002 - as Jinja2 calls it
        """Only what is listed."""
        return may_reach(obj, attr)

    def is_safe_callable(self, obj: Any) -> bool:
        """Methods that are listed, macros and blocks, and the few global functions."""
        if isinstance(obj, _CALLABLE) or any(obj is function for function in self._functions):
            return True
        if isinstance(obj, (types.BuiltinMethodType, types.MethodType)):
            return may_reach(obj.__self__, obj.__name__)
        return False

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call what a template calls, and measure what comes back."""
        self.slow()
        if isinstance(obj, Macro):
            # A macro can take its surplus arguments as one list.
            if obj.catch_varargs:
                self.meter.weigh(args)
            if obj.catch_kwargs:
                self.meter.weigh([value for name, value in kwargs.items() if name not in _IMPLICIT])
        return self.measured(super().call(context, obj, *args, **kwargs))

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:
        if sum(1 for _ in source.find_all(nodes.Node)) > self.meter.limits.nodes:
            raise LimitError(f"it has more than {self.meter.limits.nodes} names, operators, calls and tags")
        return super()._generate(source, *args, **kwargs)

    def _load_template(self, name: str, globals: Any) -> Any:  # noqa: A002 - as Jinja2 calls it
        # Each look-up of a file that is not there is one of the disk.
        self.slow()
        return super()._load_template(name, globals)

    # Methods of text that can make much of little.

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """A checked stand-in for such a method; None for every other value."""
        if not isinstance(value, (types.BuiltinMethodType, types.MethodType)) or not isinstance(value.__self__, str):
            return None
        name = value.__name__
        if name in _PADDING:
            return CheckedMethod(partial(self._pad, value))
        if name == "replace":
            return CheckedMethod(partial(self._replace, value))
        if name == "join":
            return CheckedMethod(partial(self._join, value))
        if name == "format":
            return CheckedMethod(partial(self._format, value.__self__))
        return None

    @staticmethod
    def _pad(method: Callable[..., str], width: int, *fill: str) -> str:
        if width > _LONGEST_PADDING:
            raise LimitError(f"it pads to more than {_LONGEST_PADDING} characters")
        return method(width, *fill)

    def _replace(self, method: Any, old: str, new: str, count: int = -1) -> str:
        self.check_replace(method.__self__, old, new, count)
        replaced: str = method(old, new, count)
        return replaced

    def check_replace(self, text: str, old: str, new: str, count: int | None) -> None:
        """Raise when ``text.replace(old, new, count)`` would be too large."""
        found = text.count(old)
        if count is not None and count >= 0:
            found = min(found, count)
        self.meter.fits(len(text) + found * len(new))

    def _join(self, method: Any, values: Iterable[Any]) -> str:
        self.check_join(method.__self__, values)
        joined: str = method(values)
        return joined

    def check_join(self, separator: str, values: Any) -> None:
        """Raise when ``separator.join(values)`` would be too large."""
        self.meter.fits(len(separator) * len(values))
        self.meter.weigh(values)

    def _format(self, template: str, /, *args: Any, **kwargs: Any) -> str:
        formatter: _BoundedEscapeFormatter | _BoundedFormatter
        if isinstance(template, Markup):
            formatter = _BoundedEscapeFormatter(self, escape=template.escape)
        else:
            formatter = _BoundedFormatter(self)
        formatter.bounds = self
        return type(template)(formatter.vformat(template, args, kwargs))


class _Bounded(Formatter):
    """Counts what each field of ``str.format`` gives."""

    bounds: BoundedEnvironment

    def format_field(self, value: Any, format_spec: str) -> Any:
        """One field."""
        if _LONG_NUMBER.search(format_spec):
            raise LimitError("it formats wider than 999 characters")
        text = super().format_field(self.bounds.shown(value), format_spec)
        self.bounds.tick(len(text))
        return text

    def convert_field(self, value: Any, conversion: Any) -> Any:
        """``!r`` and ``!s``."""
        return super().convert_field(self.bounds.shown(value), conversion)


class _BoundedFormatter(_Bounded, SandboxedFormatter):
    """``str.format``."""


class _BoundedEscapeFormatter(_Bounded, SandboxedEscapeFormatter):
    """``Markup.format``."""
