"""Bodies of functions, classes and modules: what each can do, found when it is asked for."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property

from hangdoc.diagnosis.program.accesses import Write, evaluated, parameters
from hangdoc.diagnosis.program.dominance import NOWHERE, control_dependence, immediate_dominators
from hangdoc.diagnosis.program.graph import ENTRY, EXIT, RAISES, Graph
from hangdoc.diagnosis.program.items import Definition, Predicate, Span
from hangdoc.diagnosis.program.pieces import Piece, last_name, span_of, walk
from hangdoc.diagnosis.program.reaching import Reaching
from hangdoc.diagnosis.program.statements import flow_graph

_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_LONGEST_TEXT = 300
"""Characters of a definition's text: some lines of the report. Judgement."""
Control = tuple[int, str]
"""A node that branches, and the label of the way that leads on."""


class Body:
    """That of a function, or of a class or module, which run like one.

    Example: of `class Trainer: def step(self): …` → name 'Trainer.step', the lines of the `def`.
    """

    def __init__(self, piece: Piece, node: ast.AST, name: str, outer: Body | None) -> None:
        self.file = piece.file
        self.name = name
        self.outer = outer
        """What it stands in: a class, a function, the module; None of a module, and of a fragment."""
        self._piece, self._node = piece, node
        self._calls: dict[int, list[ast.Call]] = {}

    @property
    def line(self) -> int:
        """Its `def`, or the first line of the module."""
        return getattr(self._node, "lineno", self._piece.first_line)

    @property
    def end_line(self) -> int:
        """Its last line."""
        return getattr(self._node, "end_lineno", self._piece.first_line + len(self._piece.lines) - 1)

    @property
    def body_line(self) -> int:
        """The first line of its body: its `def` and its decorators run in what it stands in."""
        return self._node.body[0].lineno if self.outer is not None else self.line  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return f"<{self.name} {self.file}:{self.line}>"

    @property
    def short_name(self) -> str:
        """Its name without what it stands in: 'step'."""
        return self.name.rpartition(".")[2]

    @property
    def is_class(self) -> bool:
        """It is the body of a class."""
        return isinstance(self._node, ast.ClassDef)

    @property
    def owner(self) -> Body | None:
        """The class that it is a method of, or a function in one."""
        outer = self.outer
        while outer is not None and not outer.is_class:
            outer = outer.outer
        return outer

    @cached_property
    def graph(self) -> Graph:
        """Its control flow graph; an empty one where it is nested too deeply."""
        body: Sequence[ast.AST] = [self._node.body] if isinstance(self._node, ast.Lambda) else self._node.body  # type: ignore[attr-defined]
        try:
            return flow_graph(body)
        except RecursionError:
            return flow_graph([])

    @cached_property
    def tests(self) -> dict[int, Predicate]:
        """Node → the predicate that it is."""
        tests = self.graph.tests
        copies = Counter((test.span, test.kind) for test in tests.values())
        repeated = {test.span for test in tests.values() if test.kind == "while"}
        known: dict[tuple[Span, str], Predicate] = {}
        found = {}
        for node, test in tests.items():
            key = test.span, test.kind
            if key not in known:
                twice = bool(repeated) and any(span.holds(test.span) for span in repeated)
                known[key] = Predicate(
                    *(self.file, self.name, test.span.line, test.span.column, test.span.end_line, test.span.end_column),
                    *(self._piece.text(test.span), test.kind, copies[key] * (1 + twice)),
                )
            found[node] = known[key]
        return found

    @cached_property
    def reaching(self) -> Reaching:
        """Which writes of a name reach which of its nodes."""
        return Reaching(self.graph, self.parameters, self._outer_names)

    @cached_property
    def base_names(self) -> tuple[str, ...]:
        """Of a class: the last names of what it inherits."""
        return tuple(last_name(each) for each in self._node.bases) if isinstance(self._node, ast.ClassDef) else ()

    @cached_property
    def decorators(self) -> tuple[str, ...]:
        """The last names of its decorators."""
        found = getattr(self._node, "decorator_list", ())
        return tuple(last_name(each.func if isinstance(each, ast.Call) else each) for each in found)

    def line_of(self, node: int) -> int:
        """The line of a node; of one that has no code, that of the function."""
        return getattr(self.graph.syntax[node], "lineno", self.line)

    def definition_at(self, node: int, write: Write) -> Definition:
        """What the node gives a value, for whoever reads a slice."""
        syntax = self.graph.syntax[node]
        name = write.key.partition("@")[0].removeprefix("?.")
        text = self._piece.text(header(syntax)) if syntax is not None else name
        line, column = getattr(write.node, "lineno", self.line), getattr(write.node, "col_offset", 0)
        return Definition(self.file, self.name, line, column, name, text[:_LONGEST_TEXT], write.kind)

    @cached_property
    def results(self) -> list[tuple[int, Write]]:
        """(node, what it returns or yields) of each that returns anything."""
        found: list[tuple[int, Write]] = []
        for node, syntax in enumerate(self.graph.syntax):
            if isinstance(syntax, ast.Return) and syntax.value is not None:
                found.append((node, Write("", syntax, "returned", syntax.value)))
            elif isinstance(syntax, ast.Expr | ast.Assign) and isinstance(syntax.value, ast.Yield | ast.YieldFrom):
                found.append((node, Write("", syntax, "returned", syntax.value.value)))
        return found

    @cached_property
    def raises(self) -> list[int]:
        """Its `raise` statements."""
        return [node for node, syntax in enumerate(self.graph.syntax) if isinstance(syntax, ast.Raise)]

    def raising(self, handler: int) -> list[int]:
        """The nodes of which an exception leads to the handler, by way of those before it."""
        found, waiting = [], [handler]
        while waiting:
            for node in self.graph.predecessors[waiting.pop()]:
                if node in self.graph.tests and self.graph.tests[node].kind in ("except", "with"):
                    waiting.append(node)
                else:
                    found.append(node)
        return found

    def nodes_of(self, expression: ast.AST) -> list[int]:
        """The predicates that test just this expression, in every copy."""
        return self._tested.get(id(expression), [])

    def tests_in(self, part: ast.AST) -> list[int]:
        """The predicates inside an expression."""
        return [node for each in walk(part) for node in self._tested.get(id(each), ())] if self._tested else []

    def calls(self, part: ast.AST) -> list[ast.Call]:
        """The calls in an expression, the outer ones first."""
        known = self._calls.get(id(part))
        if known is None:
            known = self._calls[id(part)] = [each for each in walk(part) if isinstance(each, ast.Call)]
        return known

    def calls_at(self, node: int) -> list[ast.Call]:
        """The calls that a node makes itself."""
        return [call for part in evaluated(self.graph.syntax[node]) for call in self.calls(part)]

    @cached_property
    def _tested(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for node, test in self.graph.tests.items():
            found.setdefault(id(test.expression), []).append(node)
        return found

    @property
    def definition(self) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """Its `def`; None of a class or module."""
        return self._node if isinstance(self._node, _FUNCTIONS) else None

    @property
    def parameters(self) -> list[ast.arg]:
        """Those of its definition; none of a class or module."""
        return parameters(self._node.args) if isinstance(self._node, _FUNCTIONS) else []

    @property
    def _outer_names(self) -> frozenset[str]:
        declared = (each for each in self.graph.syntax if isinstance(each, ast.Global | ast.Nonlocal))
        return frozenset(name for each in declared for name in each.names)

    @cached_property
    def _strict(self) -> list[list[tuple[int, int]]]:
        return _dependence(self.graph, [])

    @cached_property
    def _by_ending(self) -> list[list[tuple[int, int]]]:
        """Control dependence if any loop may go on for ever (Podgurski and Clarke 1990: weak control dependence): what
        follows a loop depends on its end."""
        return _dependence(self.graph, self.graph.loops) if self.graph.loops else self._strict

    def control(self, node: int, *, ending: bool = False) -> list[Control]:
        """What the node is control-dependent on; ``ending``: also on the end of loops before it."""
        labels = self.graph.labels
        table = self._by_ending if ending else self._strict
        return [(branch, labels[branch][place]) for branch, place in table[node] if place < len(labels[branch])]

    def passed(self, node: int) -> Iterator[Control]:
        """The tests whose outcome every way to the node has come by, the nearest first.

        That a node is control-dependent on an outcome does not say so: `a()` in `while True: ⏎ a() ⏎ if done: ⏎ break`
        runs again if `done` is False, and the first time whatever it is.
        """
        nearest, graph = self._dominators, self.graph
        while node not in (ENTRY, NOWHERE):
            before = nearest[node]
            labels = [
                label
                for each, label in zip(graph.successors[before], graph.labels[before], strict=True)
                if each == node
            ]
            first = {each for each in graph.predecessors[node] if not self._is_behind(each, node)}
            if before in self.tests and first == {before} and len(labels) == 1 and labels != [RAISES]:
                yield before, labels[0]
            node = before

    def comes_by(self, line: int, before: int) -> bool:
        """True if whoever is at the line has come by the other one."""
        nodes, others = self.nodes_at(line), self.nodes_at(before)
        reached = (node for node in nodes if self._dominators[node] != NOWHERE)
        passed = [any(node != other and self._is_behind(node, other) for other in others) for node in reached]
        return bool(passed) and all(passed)

    def leads_to(self, line: int, after: int) -> bool:
        """True if a way leads from the line on to the other one."""
        waiting = [each for node in self.nodes_at(line) for each in self.graph.successors[node]]
        wanted, seen = set(self.nodes_at(after)), set[int]()
        while waiting and not wanted & seen:
            node = waiting.pop()
            if node not in seen:
                seen.add(node)
                waiting += self.graph.successors[node]
        return bool(wanted & seen)

    def _is_behind(self, node: int, other: int) -> bool:
        """True if every way to the node leads by the other one, or none leads there."""
        while node not in (ENTRY, NOWHERE, other):
            node = self._dominators[node]
        return node != ENTRY

    @cached_property
    def _dominators(self) -> list[int]:
        return immediate_dominators(self.graph.successors, self.graph.predecessors, ENTRY)

    def controls_of(self, nodes: Sequence[int], *, ending: bool = False) -> list[Control]:
        """The predicates, and their outcomes, that all of these nodes depend on, which are copies of one thing.

        Where one copy runs on the one outcome of a predicate and another on the other, as those of a `finally`, the
        predicate decides nothing, and what that depends on counts.
        """
        found: dict[Control, int] = {}
        waiting = [(node, control) for node in nodes for control in self.control(node, ending=ending)]
        seen: set[int] = set()
        while waiting:
            node, control = waiting.pop()
            for decided in self.decided(control):
                owner = found.setdefault(decided, node)
                branch = decided[0]
                others = {(branch, label) for label in self.graph.labels[branch]} - {decided}
                if branch not in seen and others and all(found.get(each, owner) != owner for each in others):
                    seen.add(branch)
                    waiting += [(node, each) for each in self.control(branch, ending=ending)]
        return [control for control in found if control[0] not in seen]

    def decided(self, control: Control) -> tuple[Control, ...]:
        """The predicates that a control means: itself, or, of a statement that may raise, the handlers it may enter."""
        node, label = control
        if node in self.tests and label != RAISES:
            return (control,)
        found: list[Control] = []
        outcome = "raised" if label == RAISES else "ended"
        graph = self.graph
        waiting = [n for n, each in zip(graph.successors[node], graph.labels[node], strict=True) if each == RAISES]
        while waiting:
            handler = waiting.pop()
            test = graph.tests.get(handler)
            if test is not None and test.kind in ("except", "with"):
                found.append((handler, outcome))
        return tuple(found)

    @cached_property
    def _lines(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for node, syntax in enumerate(self.graph.syntax):
            if syntax is not None:
                span = header(syntax)
                for line in range(span.line, span.end_line + 1):
                    found.setdefault(line, []).append(node)
        return found

    def all_at(self, line: int) -> list[int]:
        """The nodes whose own code is, in part, on the line."""
        return self._lines.get(line, [])

    def nodes_at(self, line: int, expression: Span | None = None) -> list[int]:
        """The nodes of the statement on that line, or of the smallest part of one that holds the expression."""
        found = self._lines.get(line, [])
        syntax = self.graph.syntax
        if expression is not None:
            around = [node for node in found if header(syntax[node]).holds(expression)]  # type: ignore[arg-type]
            if around:
                best = min(_size(header(syntax[node])) for node in around)  # type: ignore[arg-type]
                return [node for node in around if _size(header(syntax[node])) == best]  # type: ignore[arg-type]
        simple = [n for n in found if isinstance(syntax[n], ast.stmt) and not hasattr(syntax[n], "body")]
        statements = [n for n in found if isinstance(syntax[n], ast.stmt | ast.ExceptHandler | ast.match_case)]
        return simple or statements or found


def _size(span: Span) -> tuple[int, int]:
    return span.end_line - span.line, span.end_column - span.column


def header(node: ast.AST) -> Span:
    """Where the node's own code stands: of a compound statement what is before its body."""
    if isinstance(node, ast.If | ast.While):
        return _from(node, node.test)
    if isinstance(node, ast.For | ast.AsyncFor):
        return _from(node, node.iter)
    if isinstance(node, ast.With | ast.AsyncWith):
        last = node.items[-1]
        return _from(node, last.optional_vars or last.context_expr)
    if isinstance(node, ast.withitem):
        return span_of(node.context_expr, node.optional_vars or node.context_expr)
    if isinstance(node, ast.comprehension):
        return span_of(node.target, node.iter)
    if isinstance(node, ast.match_case):
        return span_of(node.pattern, node.guard or node.pattern)
    if isinstance(node, ast.ExceptHandler):
        span = span_of(node)
        end = node.type or None
        return span_of(node, end) if end else Span(span.line, span.column, span.line, span.column + 6)
    if isinstance(node, SCOPES):
        first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
        return Span(first, node.col_offset, max(node.lineno, node.body[0].lineno - 1), 1 << 16)
    return span_of(node)


def _from(node: ast.stmt, last: ast.AST) -> Span:
    return Span(node.lineno, node.col_offset, last.end_lineno, last.end_col_offset)  # type: ignore[attr-defined]


def _dependence(graph: Graph, endless: Sequence[int]) -> list[list[tuple[int, int]]]:
    """Control dependence, with a way from each node of ``endless``, and from each loop that nothing leaves, to the
    exit. The place of such a way is past the node's labels."""
    successors = [list(each) for each in graph.successors]
    predecessors = [list(each) for each in graph.predecessors]

    def leave(node: int) -> None:
        successors[node].append(EXIT)
        predecessors[EXIT].append(node)

    for node in endless:
        leave(node)
    reached = bytearray(len(successors))
    _reach(predecessors, EXIT, reached)
    for node in graph.loops:
        if not reached[node]:
            leave(node)
            _reach(predecessors, node, reached)
    return control_dependence(successors, predecessors, EXIT)


def _reach(edges: Sequence[Sequence[int]], start: int, reached: bytearray) -> None:
    """Mark all that can be reached from ``start``."""
    reached[start] = 1
    waiting = [start]
    while waiting:
        for node in edges[waiting.pop()]:
            if not reached[node]:
                reached[node] = 1
                waiting.append(node)
