"""Statements: how one leads to the next, and where `break`, `return` and exceptions go."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hangdoc.diagnosis.bounds import DEEPEST
from hangdoc.diagnosis.program.expressions import Expressions
from hangdoc.diagnosis.program.graph import ENTRY, EXIT, RAISES, Graph, Loose, Test
from hangdoc.diagnosis.program.items import Span
from hangdoc.diagnosis.program.pieces import dotted, last_name, span_of

NEVER_RETURN = {"exit", "quit", "_exit", "abort", "sys.exit", "os._exit", "os.abort", "pytest.fail", "pytest.skip"}
"""Functions that raise or end the process, as they are called: docs.python.org, `NoReturn` in typeshed."""
SWALLOWING = {"suppress", "raises", "assertRaises", "assertRaisesRegex"}
"""Contexts whose `__exit__` may answer True, by the last name: contextlib, pytest, unittest."""
_JUMPS = ("return", "break", "continue", "raise")


@dataclass(slots=True)
class _Around:
    """A statement around the present one that some jumps do not leave."""

    stops: tuple[str, ...]
    jumps: dict[str, Loose] = field(default_factory=dict)
    handles: bool = False
    """An exception may end there, so that it matters what raises."""


def flow_graph(body: Sequence[ast.AST]) -> Graph:
    """The graph of a function's statements, or of a lambda's expression.

    Blocks are not formed: a node is a statement, a test or a part of an expression, which has a line to show. Raises
    RecursionError for code that is nested deeper than Python's own stack.
    """
    lowering = _Statements()
    return lowering.of(body)


class _Statements(Expressions):
    def __init__(self) -> None:
        super().__init__()
        self._around: list[_Around] = []
        self._handling = 0
        self._finals = 0

    def of(self, body: Sequence[ast.AST]) -> Graph:
        function = _Around(("return", "raise"))
        self._around.append(function)
        loose = self._block(body, [(ENTRY, "")])
        for jump in ("return", "raise"):
            loose = [*loose, *function.jumps.get(jump, ())]
        self.graph.join(loose, EXIT)
        return self.graph

    def _block(self, body: Sequence[ast.AST], incoming: Loose) -> Loose:
        for statement in body:
            lower = _LOWER.get(statement.__class__, _Statements._simple)
            incoming = lower(self, statement, incoming)
        return incoming

    def _jump(self, jump: str, loose: Loose) -> None:
        """Hand the edges to the innermost statement around that stops such a jump."""
        for around in reversed(self._around):
            if jump in around.stops:
                around.jumps.setdefault(jump, []).extend(loose)
                return

    def _node(self, statement: ast.AST, roots: list[ast.AST], incoming: Loose, test: Test | None = None) -> int:
        """A node, behind the branching parts of what it evaluates; an exception leads to where it is handled."""
        incoming, raising = self.parts(roots, incoming)
        node = self.graph.add(statement, incoming, test)
        if raising and self._handling:
            self._jump("raise", [(node, RAISES)])
        return node

    def _simple(self, node: ast.AST, incoming: Loose) -> Loose:
        added = self._node(node, [node], incoming)
        value = getattr(node, "value", None)
        if value.__class__ is ast.Await:
            value = value.value
        if value.__class__ is ast.Call and dotted(value.func) in NEVER_RETURN:
            self._jump("raise", [(added, "")])
            return []
        return [(added, "")]

    def _definition(self, node: ast.AST, incoming: Loose) -> Loose:
        """A `def` or `class`: what runs where it stands are its decorators, defaults and bases."""
        roots: list[ast.AST] = list(node.decorator_list)  # type: ignore[attr-defined]
        if isinstance(node, ast.ClassDef):
            roots += [*node.bases, *(each.value for each in node.keywords)]
        else:
            roots += [each for each in (*node.args.defaults, *node.args.kw_defaults) if each]  # type: ignore[attr-defined]
        return [(self._node(node, roots, incoming), "")]

    def _return(self, node: ast.AST, incoming: Loose) -> Loose:
        self._jump("return", [(self._node(node, [node], incoming), "")])
        return []

    def _raise(self, node: ast.AST, incoming: Loose) -> Loose:
        self._jump("raise", [(self.graph.add(node, self.parts([node], incoming)[0]), "")])
        return []

    def _break(self, node: ast.AST, incoming: Loose) -> Loose:
        self._jump("break" if isinstance(node, ast.Break) else "continue", [(self.graph.add(node, incoming), "")])
        return []

    def _assert(self, node: ast.Assert, incoming: Loose) -> Loose:
        test = self._node(node, [node.test], incoming, Test("assert", span_of(node.test), node.test))
        if node.msg is None:
            self._jump("raise", [(test, "False")])
        else:
            self._jump("raise", self._value(node.msg, [(test, "False")]))
        return [(test, "True")]

    def _if(self, node: ast.If, incoming: Loose) -> Loose:
        done: Loose = []
        while True:  # an `elif` is an `if` in the `else`, and there may be a thousand of them
            test = self._tested(node, "if", incoming)
            done += self._block(node.body, [(test, "True")])
            incoming = [(test, "False")]
            if len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
                node = node.orelse[0]
                continue
            return done + self._block(node.orelse, incoming)

    def _tested(self, node: ast.If | ast.While, kind: str, incoming: Loose) -> int:
        return self._node(node, [node.test], incoming, Test(kind, span_of(node.test), node.test))

    def _while(self, node: ast.While, incoming: Loose) -> Loose:
        head = self.graph.add(None, incoming)
        self.graph.loops.append(head)
        if isinstance(node.test, ast.Constant) and node.test.value:
            return self._loop(node, head, [(head, "")], [])
        test = self._tested(node, "while", [(head, "")])
        return self._loop(node, head, [(test, "True")], [(test, "False")])

    def _for(self, node: ast.For | ast.AsyncFor, incoming: Loose) -> Loose:
        incoming, _ = self.parts([node.iter], incoming)
        test = self._node(node, [], incoming, Test("for", span_of(node.target, node.iter), node.iter, is_loop=True))
        if self._handling:
            self._jump("raise", [(test, RAISES)])
        self.graph.loops.append(test)
        return self._loop(node, test, [(test, "round")], [(test, "ended")])

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While, head: int, rounds: Loose, ended: Loose) -> Loose:
        around = _Around(("break", "continue"))
        self._around.append(around)
        again = self._block(node.body, rounds)
        self._around.pop()
        self.graph.join([*again, *around.jumps.get("continue", ())], head)
        return [*self._block(node.orelse, ended), *around.jumps.get("break", ())]

    def _match(self, node: ast.Match, incoming: Loose) -> Loose:
        subject = self._node(node.subject, [node.subject], incoming)
        incoming, done = [(subject, "")], []
        for case in node.cases:
            test = self.graph.add(case, incoming, Test("match", span_of(case.pattern)))
            passed: Loose = [(test, "True")]
            incoming = [(test, "False")]
            if isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None:  # takes all
                incoming = []
                self.graph.tests.pop(test)
                passed = [(test, "")]
            if case.guard is not None:
                guard = self.test(case.guard, "if", passed)
                passed = [(guard, "True")]
                incoming = [*incoming, (guard, "False")]
            done += self._block(case.body, passed)
        return [*done, *incoming]

    def _with(self, node: ast.With | ast.AsyncWith, incoming: Loose) -> Loose:
        entered = self._node(node, [each.context_expr for each in node.items], incoming)
        calls = [each.context_expr for each in node.items if isinstance(each.context_expr, ast.Call)]
        if not any(last_name(call.func) in SWALLOWING for call in calls):
            return self._block(node.body, [(entered, "")])
        done, raised = self._guarded(node.body, [(entered, "")])
        if raised:
            span = span_of(node.items[0].context_expr, node.items[-1].context_expr)
            test = self.graph.add(node.items[0], raised, Test("with", span))
            if self._may_pass({last_name(each) for call in calls for each in call.args}, raised):
                self._jump("raise", [(test, "ended")])
            done.append((test, "raised"))
        return done

    def _guarded(self, body: Sequence[ast.AST], incoming: Loose) -> tuple[Loose, Loose]:
        """(the edges out of the body, those of what it raises)."""
        around = _Around(("raise",))
        self._around.append(around)
        self._handling += 1
        done = self._block(body, incoming)
        self._handling -= 1
        self._around.pop()
        return done, around.jumps.get("raise", [])

    def _try(self, node: ast.Try, incoming: Loose) -> Loose:
        if not node.finalbody:
            return self._handlers(node, incoming)
        around = _Around(_JUMPS)
        self._around.append(around)
        done = self._handlers(node, incoming)
        self._around.pop()
        if self._finals >= DEEPEST:
            loose = self._block(node.finalbody, [*done, *(e for edges in around.jumps.values() for e in edges)])
            for jump in around.jumps:
                self._jump(jump, loose)
            return loose
        self._finals += 1
        for jump, loose in around.jumps.items():
            self._jump(jump, self._block(node.finalbody, loose))
        if done or not around.jumps:
            done = self._block(node.finalbody, done)
        self._finals -= 1
        return done

    def _handlers(self, node: ast.Try, incoming: Loose) -> Loose:
        if not node.handlers:
            return self._block(node.orelse, self._block(node.body, incoming))
        done, raised = self._guarded(node.body, incoming)
        reaching = raised
        done = self._block(node.orelse, done)
        for handler in node.handlers:
            test = self.graph.add(handler, raised, Test("except", _header(handler), handler.type))
            done += self._block(handler.body, [(test, "raised")])
            raised = [(test, "ended")]
        if self._may_pass({last_name(each) for handler in node.handlers for each in _types(handler)}, reaching):
            self._jump("raise", raised)
        return done

    def _may_pass(self, caught: set[str], raised: Loose) -> bool:
        """True if one of the `raise` and `assert` statements that lead there may raise what is not caught.

        What calls may raise is taken to be caught: else all that follows a `try` would depend on it.
        """
        if caught & {"", "Exception", "BaseException"}:
            return False
        return any(_raised(self.graph.syntax[node]) not in caught for node, label in raised if label != RAISES)


def _types(handler: ast.ExceptHandler) -> Sequence[ast.AST]:
    if handler.type is None:
        return [handler]  # which has no name
    return handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]


def _raised(node: ast.AST | None) -> str:
    """The name of what a statement raises; '' where it raises again what was caught."""
    if isinstance(node, ast.Assert):
        return "AssertionError"
    if not isinstance(node, ast.Raise) or node.exc is None:
        return ""
    return last_name(node.exc.func if isinstance(node.exc, ast.Call) else node.exc)


def _header(handler: ast.ExceptHandler) -> Span:
    """Where an `except` says what it catches; the word itself of one that catches all."""
    if handler.type is not None:
        return span_of(handler.type)
    return Span(handler.lineno, handler.col_offset, handler.lineno, handler.col_offset + len("except"))


_LOWER: dict[type, Callable[[_Statements, Any, Loose], Loose]] = {
    ast.FunctionDef: _Statements._definition,
    ast.AsyncFunctionDef: _Statements._definition,
    ast.ClassDef: _Statements._definition,
    ast.Return: _Statements._return,
    ast.Raise: _Statements._raise,
    ast.Break: _Statements._break,
    ast.Continue: _Statements._break,
    ast.Assert: _Statements._assert,
    ast.If: _Statements._if,
    ast.While: _Statements._while,
    ast.For: _Statements._for,
    ast.AsyncFor: _Statements._for,
    ast.Match: _Statements._match,
    ast.With: _Statements._with,
    ast.AsyncWith: _Statements._with,
    ast.Try: _Statements._try,
    getattr(ast, "TryStar", ast.Try): _Statements._try,
}
