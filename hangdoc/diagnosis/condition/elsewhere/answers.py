"""By what a function answers that a condition asks: the reason lies there, and not in the condition.

Example: `if self.guard.spiked(params):` (train.py:86) was True on rank 1 alone, and

    55  def spiked(self, params):
    56      for p in params:
    57          if p.grad.norm() > self.limit:
    58              return True
    59      return False

→ spiked() answers by `if p.grad.norm() > self.limit:` at line 57.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hangdoc.diagnosis.condition.elsewhere.callables import Runs, run_by, set_to, the_one
from hangdoc.diagnosis.condition.elsewhere.taken import filled_by
from hangdoc.diagnosis.frames.names import names, pattern
from hangdoc.diagnosis.source.guards import guards
from hangdoc.diagnosis.source.loops import without_wrappers
from hangdoc.diagnosis.source.settings import shortened
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import dotted, enclosing_function, holds, last_name, text_of, walk
from hangdoc.model.asked import asked_by, can_be_method, is_constant
from hangdoc.model.message import Condition

_TESTS = (ast.Compare, ast.BoolOp, ast.Not)
_CONTAINERS = (ast.Dict, ast.List, ast.Set, ast.Tuple)
_COMPREHENSIONS = (ast.DictComp, ast.ListComp, ast.SetComp, ast.GeneratorExp)
_DEEPEST = 3
"""Functions that ask each other, followed this far; chosen by hand."""
MOST_TESTS = 3
"""Tests that are told of one condition: more are no reason any more. Chosen by hand."""


@dataclass(frozen=True, slots=True)
class Answer:
    """``function`` answers by these tests, in the order of its lines."""

    function: str
    tests: tuple[Condition, ...]
    queue: str = ""
    """The queue that it fills under these conditions, where the item tested was taken from it."""
    how: str = "is decided by"
    subject: str = ""
    """What is decided, where that is not what the function answers."""


def answers(sources: Sources, file: str, line: int) -> list[Answer]:
    """What the functions answer by that the condition at that line asks.

    Empty where it asks none of the program's, several of one name that cannot be told apart, or one without a test.
    """
    tree = sources.function(file, line)
    if tree is None:
        return []
    here = enclosing_function(tree, line)
    filled = [Answer(each.function, each.under, queue=each.queue) for each in filled_by(sources, file, line)]
    given = [answer for each in _given_at(tree, line) for answer in answers_of_given(sources, file, here, each)]
    return given or _of_tests(sources, file, here, list(_tests_at(tree, line)), _DEEPEST) + filled


def _given_at(tree: ast.AST, line: int) -> Iterator[ast.expr]:
    """What the line gives to a library that calls it for an answer: `due` of `Events.STARTED(event_filter=due)`, and of
    `filter(due, steps)`."""
    for node in walk(tree):
        if not isinstance(node, ast.Call):
            continue
        yield from (w.value for w in node.keywords if w.arg in names("filters_events") and w.value.lineno == line)
        drops = last_name(node.func) in names("drops_items") and len(node.args) > 1
        if node.args and node.lineno == line and (drops or pattern("filterable_event").search(dotted(node.func))):
            yield node.args[0]


def answers_of_given(sources: Sources, file: str, here: ast.AST, value: ast.expr) -> list[Answer]:
    """What the function, lambda or object answers by that a library is given."""
    found = run_by(sources, file, here, value)
    while isinstance(value, ast.Call) and last_name(value.func) in names("binds_arguments") and value.args:
        value = value.args[0]
    name = last_name(value) or (last_name(value.func) if isinstance(value, ast.Call) else "")
    if found is None:
        return []
    own = [] if found[1] is value else _by_run(sources, *found)
    if isinstance(found[1], ast.Lambda):
        return ([Answer(name, tuple(own))] if own else []) + _of_tests(sources, file, here, [found[1].body], _DEEPEST)
    return [Answer(name, tuple(dict.fromkeys(own))[:MOST_TESTS])] if own else []


def _by_run(
    sources: Sources, file: str, function: ast.FunctionDef | ast.Lambda, deep: int = _DEEPEST
) -> list[Condition]:
    """The tests of what a call runs; a lambda is one itself."""
    if isinstance(function, ast.FunctionDef):
        return _answers_by(sources, file, function, deep)
    return [Condition(text_of(function), file, function.lineno)] if _tests_something(function.body) else []


def _tests_at(tree: ast.AST, line: int) -> Iterator[ast.expr]:
    for node in walk(tree):
        if isinstance(node, ast.If | ast.While | ast.IfExp) and node.lineno == line:
            yield node.test
        elif isinstance(node, ast.keyword) and node.arg in names("tells_to_communicate") and node.lineno == line:
            yield node.value
        elif isinstance(node, ast.Match) and any(case.pattern.lineno == line for case in node.cases):
            yield node.subject
        elif isinstance(node, ast.Assign) and node.lineno == line and isinstance(node.value, ast.Call):
            yield node.value  # what a call's argument is set by
        elif isinstance(node, ast.For) and node.lineno == line and isinstance(node.iter, ast.Call):
            over = without_wrappers(node.iter)
            yield over
            if isinstance(over, ast.Call) and last_name(over.func) in names("bounds_items"):
                yield from (each for each in over.args if isinstance(each, ast.Call))  # how many items there are
        elif isinstance(node, ast.Expr | ast.Assign | ast.AugAssign | ast.Return) and holds(node, line):
            yield from _keys_within(node.value, line)
            yield from tests_within(node.value, line)
            if isinstance(node, ast.Expr) and node.lineno == line and isinstance(node.value, ast.Call):
                given = (*node.value.args, *(each.value for each in node.value.keywords))
                yield from (each for each in given if isinstance(each, ast.Call))  # what a function is given


def _keys_within(value: ast.expr | None, line: int) -> Iterator[ast.expr]:
    """`kind` of `self.handlers[kind](x)`, and of `self.handlers[kind].run(x)`, by which it is looked up what runs."""
    for node in walk(value) if value is not None else ():
        if isinstance(node, ast.Call) and node.lineno == line:
            table = node.func.value if isinstance(node.func, ast.Attribute) else node.func
            yield from [table.slice] if isinstance(table, ast.Subscript) else []


def tests_within(value: ast.expr | None, line: int) -> Iterator[ast.expr]:
    """The tests of `ready() and sync()` and of `[sync(x) for x in xs if x.ready()]`, which have no statement of their
    own."""
    nodes = list(walk(value)) if value is not None else []
    tests = [t for node in nodes for t in (getattr(node, "test", None), *getattr(node, "ifs", ())) if t is not None]
    within = {part for test in tests for part in walk(test)}
    for node in nodes:
        if node in within:
            continue
        if isinstance(node, ast.Call) and node.lineno == line and dotted(node.func) in ("any", "all"):
            yield node
        elif isinstance(node, ast.BoolOp) and node.lineno == line and isinstance(node.values[-1], ast.Call):
            yield node.values[0] if len(node.values) == 2 else ast.BoolOp(node.op, node.values[:-1])
        elif isinstance(node, ast.comprehension) and len(node.ifs) == 1 and node.ifs[0].lineno == line:
            yield node.ifs[0]


def _of_tests(sources: Sources, file: str, here: ast.AST, tests: list[ast.expr], deep: int) -> list[Answer]:
    found: dict[str, Answer] = {}
    for test in tests:
        if not _asks_alone(test):
            continue  # which of its operands decided is not known
        for value in _as_set(here, test):
            for name, called in asked_by(value).items():
                function: Runs | None = the_one(sources, here, name, called=called)
                if function is not None and not all(can_be_method(function[1], each) for each in _called(value, name)):
                    continue
                if function is None and called:
                    function = _object_called(sources, file, here, value, name)
                if function is not None and name not in found:
                    by = _by_run(sources, *function, deep)
                    found[name] = Answer(name, tuple(dict.fromkeys(by))[:MOST_TESTS])
    return [answer for answer in found.values() if answer.tests]


def _object_called(sources: Sources, file: str, here: ast.AST, value: ast.expr, name: str) -> Runs | None:
    """What `due(step)` runs, of which `due` is no function, but was set to something that can be called."""
    return run_by(sources, file, here, next(_called(value, name)))


def _called(value: ast.expr, name: str) -> Iterator[ast.expr]:
    """What the calls of that name in the expression call."""
    return (each.func for each in walk(value) if isinstance(each, ast.Call) and last_name(each.func) == name)


def _asks_alone(test: ast.expr) -> bool:
    """False for `self.due(step) and loss.isnan()`: what due() answers by may not be what decided. Constants of the
    program decide nothing."""
    if isinstance(test, ast.UnaryOp):
        return _asks_alone(test.operand)
    if not isinstance(test, ast.BoolOp):
        return True
    operands = [v.operand if isinstance(v, ast.UnaryOp) else v for v in test.values]
    return len([v for v in operands if not (isinstance(v, ast.Name) and v.id.isupper())]) == 1


def _as_set(here: ast.AST, test: ast.expr) -> Iterator[ast.expr]:
    """The test; and for each plain name whose truth decides it, the value that the function once sets it to."""
    yield test
    for name in _deciding_names(test):
        values = list(set_to(here, name).values())
        if len(values) == 1 and values[0] is not None:
            yield values[0]


def _deciding_names(test: ast.expr) -> Iterator[str]:
    if isinstance(test, ast.Name):
        yield test.id
    elif isinstance(test, ast.UnaryOp):
        yield from _deciding_names(test.operand)
    elif isinstance(test, ast.Compare) and all(map(is_constant, test.comparators)):
        yield from _deciding_names(test.left)
    elif isinstance(test, ast.Call) and isinstance(test.func, ast.Attribute):
        yield from _deciding_names(test.func.value)  # `found.numel()`
    elif isinstance(test, ast.BoolOp):
        for value in test.values:
            yield from _deciding_names(value)


def _put_in_order(function: ast.AST, name: str) -> Iterator[ast.stmt]:
    """The statements that change which items the name holds, or their order: `found.append(x)`, `order.reverse()`."""
    for node in walk(function):
        if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
            continue
        called = node.value.func
        if isinstance(called, ast.Attribute) and called.attr in names("changes_order") and dotted(called.value) == name:
            yield node


def _answers_by(sources: Sources, file: str, function: ast.FunctionDef, deep: int) -> list[Condition]:
    """The tests by which the function answers; what it returns of another's where it has none."""
    tests: list[Condition] = []
    handed_on: list[Condition] = []
    for node in walk(function):
        if not isinstance(node, ast.Return) or enclosing_function(function, node.lineno) is not function:
            continue
        tests += _tests_around(file, function, [node], ("if", "return"))
        if node.value is not None:
            asked = [node.value, *_before_what_is_made(node.value)]
            inner = _of_tests(sources, file, function, asked, deep - 1) if deep > 1 else []
            tests += [*_own_test(file, function, node.value), *(test for answer in inner for test in answer.tests)]
            if isinstance(node.value, ast.Call) and not inner:
                handed_on.append(Condition(f"return {text_of(node.value)}", file, node.value.lineno))
    return tests or handed_on


def _before_what_is_made(value: ast.expr) -> list[ast.expr]:
    """`kept` of `return kept and torch.cat(kept)`: what decides whether the function makes anything."""
    made = isinstance(value, ast.BoolOp) and isinstance(value.values[-1], ast.Call | ast.Tuple | ast.List | ast.Dict)
    return value.values[:1] if made and isinstance(value, ast.BoolOp) and len(value.values) == 2 else []


def _tests_around(
    file: str, function: ast.AST, statements: Iterable[ast.stmt], kinds: tuple[str, ...] = ("if",)
) -> list[Condition]:
    """The conditions that some of the statements are under, the innermost of each."""
    around = [[g for g in guards(function, node.lineno) if g.kind in kinds] for node in statements]
    return [Condition(found[-1].condition, file, found[-1].line) for found in around if found]


def _own_test(file: str, function: ast.AST, value: ast.expr) -> list[Condition]:
    """The value of a `return` as a test; none where it only hands on what was made, such as a tensor."""
    if isinstance(value, ast.Name):
        setting = set_to(function, value.id)
        changed = [*(node for node in setting if isinstance(node, ast.stmt)), *_put_in_order(function, value.id)]
        if len(changed) > 1:
            return _tests_around(file, function, changed, ("if", "return"))
        made = next(iter(setting.values()), None)
        if made is not None and _tests_something(made):
            return [Condition(f"{value.id} = {text_of(made)}", file, made.lineno)]
        return []
    if _tests_something(value):
        return [Condition(shortened(f"return {text_of(value)}", value), file, value.lineno)]
    return []


def _tests_something(value: ast.expr) -> bool:
    """True for an expression with a test in it; of a container, if the test says which items it has."""
    if isinstance(value, _COMPREHENSIONS):
        return any(each.ifs for each in value.generators)
    return not isinstance(value, _CONTAINERS) and any(isinstance(part, _TESTS) for part in walk(value))
