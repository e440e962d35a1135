"""Names that end a library's loop, and the lines that set them: one rule for what capture keeps and diagnosis says.

Example: a library runs `while not self.should_stop: step()` and offers `def stop(self): self.should_stop = True`. The
flag is `should_stop`, its setter is `stop`, and the user's `trainer.stop()` or `trainer.should_stop = True` ends the
loop. All functions take syntax trees with the line numbers of their file.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator

_STEPS = 2
"""From a name in a condition to the properties and methods that it names, and on to what these read."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


def leaving_tests(tree: ast.AST, raising: Collection[str] = ()) -> Iterator[ast.expr]:
    """The tests of `while` loops, of each `if` that leaves a loop or a function, and the calls of the methods
    ``raising``, which leave a loop by an exception.

    Examples: `while not done: ⏎ if self.stop: ⏎ break` → `not done` and `self.stop`; `self.check()` where that is `if
    self.stop: ⏎ raise EndOfEpoch()` → `self.check()`.
    """
    for node in ast.walk(tree):
        leaves = isinstance(node, ast.If) and isinstance(node.body[-1], ast.Break | ast.Return | ast.Raise)
        if isinstance(node, ast.While | ast.If) and (leaves or isinstance(node, ast.While)):
            yield node.test
        elif isinstance(node, ast.Expr):
            called = node.value.value if isinstance(node.value, ast.YieldFrom | ast.Await) else node.value
            if isinstance(called, ast.Call) and not called.args and getattr(called.func, "attr", "") in raising:
                yield called


def raising_methods(library: ast.AST) -> set[str]:
    """The functions that raise under a condition what is no error."""
    return {node.name for node in functions(library) if any(map(_raises_no_error, node.body))}


def _raises_no_error(node: ast.AST) -> bool:
    """True for `if self.stop: ⏎ raise EndOfEpoch()`: by habit, what is no failure is not called an error."""
    last = node.body[-1] if isinstance(node, ast.If) else None
    raised = last.exc.func if isinstance(last, ast.Raise) and isinstance(last.exc, ast.Call) else None
    name = raised.attr if isinstance(raised, ast.Attribute) else getattr(raised, "id", "")
    return bool(name) and not name.endswith(("Error", "Warning"))


def tests_around(tree: ast.AST, lines: Collection[int]) -> Iterator[ast.expr]:
    """The tests of each `if` that holds one of the lines in its body: what led there.

    Example: of `if self.control.should_save: ⏎ self.save()`, line 2 → `self.control.should_save`.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.If):
            first, last = node.body[0].lineno, node.body[-1].end_lineno or node.body[-1].lineno
            if any(first <= line <= last for line in lines):
                yield node.test


def flags_in(test: ast.expr) -> set[str]:
    """The attributes and methods whose truth decides a test, by their last names.

    Example: `not self.is_done(self.state) and self.trainer.stop is True` → {'is_done', 'stop'}.
    """
    if isinstance(test, ast.BoolOp):
        return {name for value in test.values for name in flags_in(value)}
    if isinstance(test, ast.UnaryOp):
        return flags_in(test.operand)
    if isinstance(test, ast.Compare):
        plain = all(isinstance(each, ast.Constant) and isinstance(each.value, bool | str) for each in test.comparators)
        return flags_in(test.left) if plain else set()
    if isinstance(test, ast.Call):
        return flags_in(test.func)
    return {test.attr} if isinstance(test, ast.Attribute) else set()


def flags(tests: Iterable[ast.expr], tree: ast.AST) -> set[str]:
    """What decides these tests; of a method or property that ``tree`` defines, also what decides its result.

    Example: `while not self.done`, where `done` returns `self.trainer.should_stop` → {'done', 'should_stop'}.
    """
    fresh = {name for test in tests for name in flags_in(test)}
    found = set(fresh)
    for _ in range(_STEPS):
        inner = [test for node in functions(tree) if node.name in fresh for test in _results(node)]
        fresh = {name for test in inner for name in flags_in(test)} - found
        found |= fresh
    return found


def _results(function: ast.AST) -> Iterator[ast.expr]:
    """What decides what a function returns: the values of its `return`, and the tests in it."""
    for node in ast.walk(function):
        if isinstance(node, ast.Return) and node.value is not None:
            yield node.value
        elif isinstance(node, ast.If):
            yield node.test


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """All functions of a tree, methods included."""
    yield from (node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS))


def setters(tree: ast.AST, names: Collection[str]) -> dict[str, set[str]]:
    """Function → the flags among ``names`` that it sets; functions that loop run the work and are left out.

    Example: `def terminate(self): self.should_terminate = True` → {'terminate': {'should_terminate'}}.
    """
    found: dict[str, set[str]] = {}
    for node in functions(tree):
        if node.name.startswith("__") or any(isinstance(inner, _LOOPS) for inner in ast.walk(node)):
            continue
        flagged = {attribute for _, attribute in _set_in(node) if attribute in names}
        if flagged:
            found.setdefault(node.name, set()).update(flagged)
    return found


def set_at(tree: ast.AST, names: Collection[str], methods: Collection[str]) -> list[tuple[int, str]]:
    """(line, name) of each place that sets a flag among ``names``, or calls one of ``methods``, in order."""
    found = [(line, attribute) for line, attribute in _set_in(tree) if attribute in names]
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    found += [(call.lineno, name) for call in calls if (name := getattr(call.func, "attr", "")) in methods]
    return sorted(set(found))


def _set_in(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, attribute) of each assignment to an attribute by which a flag may become true."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or not _may_be_true(node.value):
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            # `self.trainer = trainer` keeps an object: it sets no flag.
            if isinstance(target, ast.Attribute) and getattr(node.value, "id", "") != target.attr:
                yield node.lineno, target.attr


def _may_be_true(value: ast.expr | None) -> bool:
    """True for True, a text, a name, and what compares or combines others."""
    if isinstance(value, ast.Constant):
        return value.value is True or isinstance(value.value, str)
    return isinstance(value, ast.Name | ast.Compare | ast.BoolOp | ast.UnaryOp | ast.IfExp)
