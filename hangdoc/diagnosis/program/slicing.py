"""The backward slice: what may have decided that a statement runs, and with which values.

Weiser 1981, over control dependence and definitions together, the nearest first. A function that is gone into knows
the call that led there, so that its parameters are that call's arguments.
"""

from __future__ import annotations

import ast
import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.program.accesses import Read, Write, evaluated, reads
from hangdoc.diagnosis.program.bodies import Body
from hangdoc.diagnosis.program.contexts import Context, Contexts
from hangdoc.diagnosis.program.items import Definition, Predicate, Reached, Span
from hangdoc.diagnosis.program.lookup import Lookup, argument
from hangdoc.diagnosis.program.outcomes import (
    ROUNDS,
    gone_through,
    is_against,
    is_one_item,
    operands,
    opposite,
    without_not,
)
from hangdoc.diagnosis.program.pieces import outermost_in
from hangdoc.diagnosis.program.protocols import implied_calls
from hangdoc.model.process import Frame

Ran = Callable[[str, int], bool | None]
"""(file, line) → whether the line is known to have run, or not to have; None where that is not known."""
Path = tuple[Predicate | Definition, ...]

_BUDGET = 20_000
"""Steps of one slice: all of a program of some 5,000 lines. Judgement."""
# What a step costs. Control dependence in one function is the unit; the others are judgement: what goes by a name, that
# may mean another thing, costs more than what does not.
_CONTROL, _OPERAND, _ENDING, _CALLER, _HANDED_ON = 1.0, 0.5, 1.5, 2.0, 3.0
_LOCAL, _ELSEWHERE, _CONTENTS, _RETURNED, _LIBRARY = 1.0, 1.5, 1.5, 1.5, 2.0
_STATEMENT = 2.0
"""Before what the first statement reads, where it is asked why it runs and not with which values."""


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    """Something to be looked at: a predicate, or what the node gives a value (``write``)."""

    context: Context
    node: int
    path: Path
    relation: str
    write: Write | None = None
    wanted: str = ""
    """Of a write: what is known of the value that was read, as of ``outcomes.is_against``."""
    against: bool = False
    """Of a predicate: what it leads to was not to run, so its other outcome leads to the start."""

    @property
    def counts(self) -> bool:
        """True of an item of what is gone through, where it is asked how many there are."""
        return self.write is not None and self.wanted in ROUNDS and is_one_item(self.write)


class Slice:
    """Iterates over what was reached, the nearest first; each item comes once. It may be gone through again."""

    def __init__(self, walk: _Walk | None) -> None:
        self._walk = walk
        self._found = iter(()) if walk is None else walk.reached()
        self._kept: list[Reached] = []

    @property
    def cut(self) -> bool:
        """True once the budget has been used up, and the rest was not looked at."""
        return self._walk is not None and self._walk.cut

    def __iter__(self) -> Iterator[Reached]:
        place = 0
        while True:
            if place == len(self._kept):
                following = next(self._found, None)
                if following is None:
                    return
                self._kept.append(following)
            yield self._kept[place]
            place += 1


def sliced(
    lookup: Lookup, file: str, line: int, expression: Span | None, stack: Sequence[tuple[str, int]], ran: Ran | None
) -> Slice:
    """See ``Program.slice_back``."""
    function = lookup.index.at(file, line)
    if function is None:
        return Slice(None)
    walk = _Walk(lookup, stack, ran)
    walk.start(function, line, expression)
    return Slice(walk)


class _Walk:
    """One slice: a queue of steps, the nearest first."""

    def __init__(self, lookup: Lookup, stack: Sequence[tuple[str, int]], ran: Ran | None) -> None:
        self.cut = False
        self._lookup, self._ran = lookup, ran
        self._contexts = Contexts(lookup, stack)
        self._queue: list[tuple[float, int, _Step]] = []
        self._pushed = 0
        self._outcomes: dict[Predicate, tuple[float, set[str]]] = {}
        self._seen: set[tuple[Body, int, Write | None, bool]] = set()
        self._told: set[Predicate | Definition] = set()
        self._left: set[Body] = set()

    def start(self, function: Body, line: int, expression: Span | None) -> None:
        """From the statement at the line, or an expression in it."""
        context = self._contexts.start(function)
        nodes = function.nodes_at(line, expression)
        self._decided(context, nodes, 0.0, ())
        for node in nodes:
            for part in evaluated(function.graph.syntax[node]):
                if expression is None:
                    self._read(context, node, part, _STATEMENT, ())
                for each in outermost_in(part, expression) if expression is not None else ():
                    self._read(context, node, each, 0.0, ())

    def reached(self) -> Iterator[Reached]:
        """What is reached, the nearest first."""
        while self._queue:
            distance, _, step = heapq.heappop(self._queue)
            key = step.context.function, step.node, step.write, step.counts
            if key in self._seen:
                continue
            if len(self._seen) >= _BUDGET:
                self.cut = True
                return
            self._seen.add(key)
            item, outcome = self._item(step)
            if item is not None and item not in self._told:
                self._told.add(item)
                yield Reached(item, outcome, distance, step.path, step.relation)
            path = step.path if item is None else (*step.path, item)
            if step.write is None:
                self._from_predicate(step, distance, outcome, path)
            elif step.write.kind == "argument":
                self._from_argument(step.context, step.write, distance, path, step.wanted)
            else:
                against = is_against(step.write, step.wanted)
                self._decided(step.context, [step.node], distance, path, against=against)
                if step.write.value is not None and not step.counts:
                    self._read(step.context, step.node, step.write.value, distance, path, wanted=step.wanted)

    def _item(self, step: _Step) -> tuple[Predicate | Definition | None, str]:
        """(item, outcome); an import and a `def` are none."""
        function, write = step.context.function, step.write
        if write is not None:
            return (None if write.kind in ("import", "def") else function.definition_at(step.node, write)), ""
        item = function.tests[step.node]
        outcomes = self._outcomes[item][1]
        return item, next(iter(outcomes)) if len(outcomes) == 1 else ""

    def _push(self, step: _Step, distance: float, outcome: str = "") -> None:
        function = step.context.function
        line = function.line_of(step.node)
        if step.write is not None and not self._may_have_run(function, line):
            return
        if is_library(Frame(function.file, line, "")):
            distance += _LIBRARY
        if step.write is None:
            item = function.tests[step.node]
            known = self._outcomes.get(item)
            if known is None or distance < known[0]:
                self._outcomes[item] = (distance, {outcome})
            elif distance == known[0]:
                known[1].add(outcome)
        self._pushed += 1
        heapq.heappush(self._queue, (distance, self._pushed, step))

    def _may_have_run(self, function: Body, line: int) -> bool:
        return self._ran is None or self._ran(function.file, line) is not False

    # What decides that something runs.

    def _decided(
        self,
        context: Context,
        nodes: list[int],
        distance: float,
        path: Path,
        relation: str = "controls",
        *,
        against: bool = False,
    ) -> None:
        """On to the predicates that decide whether the nodes run, and on to the callers of the function.

        ``against``: the way past the nodes is meant. Any of what they depend on may have led past them.
        """
        function = context.function
        strict = function.controls_of(nodes)
        ended = [each for each in function.controls_of(nodes, ending=True) if each not in strict]
        for controls, cost in ((strict, _CONTROL), (ended, _ENDING)):
            for node, outcome in controls:
                way = opposite(function.graph.tests[node], outcome) if against else outcome
                self._push(_Step(context, node, path, relation, against=against), distance + cost, way)
        if context.call is None and function not in self._left:
            self._left.add(function)
            for each in self._contexts.entered(context):
                if self._may_have_run(each.context.function, each.context.function.line_of(each.node)):
                    cost = distance + (_CALLER if each.call is not None else _HANDED_ON)
                    self._decided(each.context, [each.node], cost, path, "calls", against=against)

    def _from_predicate(self, step: _Step, distance: float, outcome: str, path: Path) -> None:
        context, node = step.context, step.node
        test = context.function.graph.tests[node]
        self._decided(context, [node], distance, path, against=step.against)
        if test.kind in ("except", "with"):
            self._raised(context, node, outcome, distance, path)
        elif test.expression is not None:
            parts, each_was = operands(test.expression, outcome)
            for part in parts:  # each reads what it tests itself, and knows what it was
                for operand in context.function.nodes_of(part):
                    inner = _Step(context, operand, path, "controls", against=step.against)
                    self._push(inner, distance + _OPERAND, each_was)
            if not parts:
                self._read(context, node, test.expression, distance, path, wanted=outcome)

    def _raised(self, context: Context, handler: int, outcome: str, distance: float, path: Path) -> None:
        """On to what may have raised what is handled: `raise` statements, also of the functions that were called."""
        function, against = context.function, outcome == "ended"
        for node in function.raising(handler):
            if isinstance(function.graph.syntax[node], ast.Raise):
                self._decided(context, [node], distance, path, against=against)
            for call in function.calls_at(node):
                for callee in self._lookup.called(function, node, call):
                    inner = Context(callee, context, node, call)
                    self._decided(inner, callee.raises, distance + _CALLER - _CONTROL, path, "calls", against=against)

    # What gives a value.

    def _from_argument(self, context: Context, write: Write, distance: float, path: Path, wanted: str) -> None:
        """On to what the calls give a parameter; of a function that is handed on, to all that is there."""
        for each in self._contexts.entered(context):
            caller, node = each.context, each.node
            value = argument(context.function, write.key, each.call) if each.call is not None else None
            parts = evaluated(caller.function.graph.syntax[node]) if each.call is None else [value] if value else []
            cost = _CALLER if each.call is not None else _HANDED_ON
            self._decided(caller, [node], distance + cost, path, "calls")
            for part in parts:
                self._read(caller, node, part, distance + cost - _LOCAL, path, "calls", wanted)

    def _read(
        self,
        context: Context,
        node: int,
        part: ast.AST,
        distance: float,
        path: Path,
        relation: str = "defines",
        wanted: str = "",
    ) -> None:
        """On to what gave the names in an expression their values, and to what the calls in it return."""
        function = context.function
        if wanted in ROUNDS and (inner_parts := gone_through(part)):
            for each in inner_parts:
                self._read(context, node, each, distance, path, relation, wanted)
            return
        whole, was = without_not(part, wanted)
        for read in reads(part, function.graph.bound.get(node, {})):
            self._name(context, node, read, distance, path, relation, was if read.node is whole else "")
        for call in function.calls(part):
            for callee in self._lookup.called(function, node, call):
                inner = Context(callee, context, node, call)
                self._returns(inner, distance + _RETURNED, path, was if call is whole else "")
        for owner, methods in implied_calls(part, function.graph.tests.get(node)):
            for made in self._lookup.classes(function, node, owner):
                for method in (each for name in methods for each in self._lookup.index.methods(made, name)):
                    self._returns(Context(method), distance + _RETURNED, path)
        for test in function.tests_in(part):  # `x if c else y` decides which value it is
            if test != node:
                self._push(_Step(context, test, path, "controls"), distance + _CONTROL)

    def _name(
        self, context: Context, node: int, read: Read, distance: float, path: Path, relation: str, wanted: str
    ) -> None:
        function, key, named = context.function, read.key, read.node
        if read.called:  # of `self.jobs.get()`, what is in `self.jobs`
            base = key.rpartition(".")[0]
            if base in ("", "?", "self", "cls") or not isinstance(named, ast.Attribute):
                return
            key, named = base, named.value
        for where, at, write in self._lookup.writes(function, node, key, named):
            is_content, is_local = write.key.endswith("[]"), where is function
            if is_content or not read.called:
                cost = _CONTENTS if is_content else _LOCAL if is_local else _ELSEWHERE
                reader = context if is_local else Context(where)
                self._push(_Step(reader, at, path, "fills" if is_content else relation, write, wanted), distance + cost)
        if not read.called:  # a property, or a function that is handed on to be called
            for each in self._lookup.functions(function, node, named):
                is_property = "property" in each.decorators
                cost = _RETURNED if is_property else _HANDED_ON
                self._returns(Context(each), distance + cost, path, wanted if is_property else "")

    def _returns(self, context: Context, distance: float, path: Path, wanted: str = "") -> None:
        """On to what a function returns or yields."""
        for node, write in context.function.results:
            self._push(_Step(context, node, path, "returns", write, wanted), distance)
