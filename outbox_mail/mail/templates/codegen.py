"""Jinja2's compiler, with a call of the meter wherever a template could go on for ever or make something huge.

What the compiler of Jinja2 3.1 writes for a template is Python: a generator for the body and for each block, plain
``for`` loops, closures for macros. Filters, tests, calls and attributes go through the environment, which can count
them; loops, literals, ``~``, slices and comparisons don't, so they are sent there too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame

CALLED: Final = "called"
"""``ctx`` of the ``Getattr`` in ``x.items()``, as against that in ``x.items``."""

_LOOP_STEP: Final = "slow()"


class MeteredCodeGenerator(CodeGenerator):
    """Writes ``environment.tick`` and its like into the code."""

    def blockvisit(self, nodes: Iterable[nodes.Node], frame: Frame) -> None:
        """Every body (template, block, loop, branch, macro) takes its number of pieces before it runs.

        The pieces count, and not only the body: each may put something into a buffer.
        """
        body = list(nodes)
        self.writeline(f"environment.tick({1 + sum(_pieces(node) for node in body)})")
        super().blockvisit(body, frame)

    def visit_For(self, node: nodes.For, frame: Frame) -> None:  # noqa: N802 - named by Jinja2
        """The condition of ``for … if …`` runs also for items that the body never sees."""
        if node.test is not None:
            node.test = nodes.And(nodes.EnvironmentAttribute(_LOOP_STEP), node.test, lineno=node.test.lineno)
        super().visit_For(node, frame)

    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:  # noqa: N802 - named by Jinja2
        """Comparing two lists takes as long as they are large."""
        if len(node.ops) > 8:
            self.fail("too many comparisons in one", node.lineno)
        self.write("(environment.slow() and ")
        super().visit_Compare(node, frame)
        self.write(")")

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802 - named by Jinja2
        """``~``, which Jinja2 joins without asking the environment."""
        self.write("environment.concatenate(context.eval_ctx, (")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:  # noqa: N802 - named by Jinja2
        """A slice is a copy, and is made without asking the environment."""
        sliced = isinstance(node.arg, nodes.Slice)
        if sliced:
            self.write("environment.measured(")
        super().visit_Getitem(node, frame)
        if sliced:
            self.write(")")

    def visit_List(self, node: nodes.List, frame: Frame) -> None:  # noqa: N802 - named by Jinja2
        """A list may hold another many times."""
        self._literal(node.items, super().visit_List, node, frame)

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:  # noqa: N802 - named by Jinja2
        """As a list; but not where it is the target of an assignment."""
        if node.ctx == "load":
            self._literal(node.items, super().visit_Tuple, node, frame)
        else:
            super().visit_Tuple(node, frame)

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:  # noqa: N802 - named by Jinja2
        """As a list."""
        self._literal([part for pair in node.items for part in (pair.key, pair.value)], super().visit_Dict, node, frame)

    def visit_Call(self, node: nodes.Call, frame: Frame, forward_caller: bool = False) -> None:  # noqa: N802 - named by Jinja2
        """Tell ``order.items()`` from ``order.items``: only the first means the method."""
        if isinstance(node.node, nodes.Getattr):
            node.node.ctx = CALLED
        super().visit_Call(node, frame, forward_caller=forward_caller)

    def visit_Getattr(self, node: nodes.Getattr, frame: Frame) -> None:  # noqa: N802 - named by Jinja2
        """An attribute that is called is a method; any other is data before it is a method."""
        self.write("environment.getmethod(" if node.ctx == CALLED else "environment.getattr(")
        self.visit(node.node, frame)
        self.write(f", {node.attr!r})")

    def _literal(self, parts: Iterable[nodes.Expr], visit: Any, node: nodes.Expr, frame: Frame) -> None:
        if all(isinstance(part, nodes.Const) for part in parts):
            visit(node, frame)
            return
        self.write("environment.measured(")
        visit(node, frame)
        self.write(")")

    def _output_child_to_const(self, node: nodes.Expr, frame: Frame, finalize: Any) -> str:
        # What can be computed while compiling is computed without a meter, so nothing is.
        if not isinstance(node, nodes.TemplateData):
            raise nodes.Impossible
        return super()._output_child_to_const(node, frame, finalize)


def _pieces(node: nodes.Node) -> int:
    return len(node.nodes) if isinstance(node, nodes.Output) else 1
