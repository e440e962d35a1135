"""Expressions in which control branches: `and`, `or`, `x if c else y`, comprehensions."""

from __future__ import annotations

import ast

from hangdoc.diagnosis.program.accesses import Bound, Comprehension, bound_by
from hangdoc.diagnosis.program.graph import Graph, Loose, Test
from hangdoc.diagnosis.program.pieces import children, span_of

_BRANCHY = (ast.BoolOp, ast.IfExp, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)
_RAISING = (ast.Call, ast.Attribute, ast.Subscript, ast.BinOp, ast.Compare, ast.Await, ast.Yield, ast.YieldFrom)


def branching_parts(roots: list[ast.AST]) -> tuple[list[ast.AST], bool]:
    """(the outermost parts in which control branches, in the order in which they run; whether any of it may raise).

    Examples: `x = a and f(b)` → ([the `and`], True); `x = 1` → ([], False).
    """
    found: list[ast.AST] = []
    raising = False
    waiting = roots[::-1]
    while waiting:
        node = waiting.pop()
        kind = node.__class__
        if kind in _BRANCHY:
            found.append(node)
            raising = True
        elif kind is not ast.Name and kind is not ast.Constant:
            raising = raising or kind in _RAISING
            waiting += children(node)
    return found, raising


class Expressions:
    """Lowers expressions into the graph: each method takes the edges that come in and gives those that go out.

    An operand, an arm, a test are nodes of their own before the node that uses the value. The value of `a and b` joins
    there again, so a statement under `if a and b:` depends on the `if`, and `b` on `a`.
    """

    def __init__(self) -> None:
        self.graph = Graph()
        self._bound: Bound = {}

    def parts(self, roots: list[ast.AST], incoming: Loose) -> tuple[Loose, bool]:
        """All branching parts of the roots; also whether any of it may raise."""
        found, raising = branching_parts(roots)
        for part in found:
            incoming = self._part(part, incoming)
        return incoming, raising

    def test(self, node: ast.AST, kind: str, incoming: Loose) -> int:
        """A predicate that tests the expression."""
        incoming, _ = self.parts([node], incoming)
        return self._add(node, incoming, Test(kind, span_of(node), node))

    def _add(self, node: ast.AST, incoming: Loose, test: Test | None = None) -> int:
        added = self.graph.add(node, incoming, test)
        if self._bound:
            self.graph.bound[added] = self._bound
        return added

    def _part(self, node: ast.AST, incoming: Loose) -> Loose:
        if isinstance(node, ast.BoolOp):
            return self._operands(node, incoming)
        if isinstance(node, ast.IfExp):
            test = self.test(node.test, "ifexp", incoming)
            return [*self._value(node.body, [(test, "True")]), *self._value(node.orelse, [(test, "False")])]
        assert isinstance(node, ast.Lambda | Comprehension)
        around, self._bound = self._bound, bound_by(node, self._bound)
        if isinstance(node, ast.Lambda):
            incoming, _ = self.parts([node.body], incoming)  # taken to run where it stands
        else:
            incoming = self._comprehension(node, incoming)
        self._bound = around
        return incoming

    def _value(self, node: ast.AST, incoming: Loose) -> Loose:
        incoming, _ = self.parts([node], incoming)
        return [(self._add(node, incoming), "")]

    def _operands(self, node: ast.BoolOp, incoming: Loose) -> Loose:
        """Of `a and b`: a True → b, a False → out."""
        kind, onwards, out = ("and", "True", "False") if isinstance(node.op, ast.And) else ("or", "False", "True")
        done: Loose = []
        for operand in node.values[:-1]:
            test = self.test(operand, kind, incoming)
            incoming = [(test, onwards)]
            done.append((test, out))
        return [*done, (self.test(node.values[-1], kind, incoming), "")]

    def _comprehension(self, node: Comprehension, incoming: Loose) -> Loose:
        """A loop in a loop for each `for`; a filter that is False leads to the next round."""
        loops: list[int] = []
        for each in node.generators:
            incoming, _ = self.parts([each.iter], incoming)
            span = span_of(each.target, each.iter)
            loop = self._add(each, incoming, Test("comprehension", span, each.iter, is_loop=True))
            self.graph.loops.append(loop)
            if loops:
                self.graph.join([(loop, "ended")], loops[-1])
            loops.append(loop)
            incoming = [(loop, "round")]
            for condition in each.ifs:
                test = self.test(condition, "comprehension", incoming)
                self.graph.join([(test, "False")], loop)
                incoming = [(test, "True")]
        values = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        for value in values:
            incoming = self._value(value, incoming)
        self.graph.join(incoming, loops[-1])
        return [(loops[0], "ended")]
