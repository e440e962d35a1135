"""The lines by which others let a polling process go on: what changes something that its loop asks for, elsewhere.

Example: of `while store.add("inside", 1) > self.limit:` in Gate.enter(), with the sleep in it, the line
`self.store.add("inside", -1)` of Gate.leave(); and who comes to that line, one call back, at `gate.leave()`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hangdoc.diagnosis.bounds import DEEPEST, LISTED
from hangdoc.diagnosis.frames.names import names, pattern
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.handlers import calls_of
from hangdoc.diagnosis.source.settings import place_of
from hangdoc.diagnosis.source.shared_values import tests_of, written
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import (
    enclosing_function,
    function_name,
    holds,
    innermost_loop,
    last_name,
    text_of,
    walk,
)
from hangdoc.model.process import Frame, Stack

_CHANGES = ("fills_store", "pushes_item", "makes_file", "writes_file", "removes_file", "lets_lock_go", "makes_mark")


def what_lets_on(sources: Sources, stack: Stack) -> list[Frame]:
    """The lines outside of the function that polls, and not where an object is made, which change what the innermost
    loop around the stack's line asks for; [] where there are too many."""
    where = next(iter(user_stack(stack)), None)
    here = place_of(sources, where.file, where.line) if where is not None else None
    loop = innermost_loop(here.tree, where.line) if here is not None and where is not None else None
    if loop is None or here is None or where is None:
        return []
    asked = {name for name in _asked(sources, here.function, tests_of(loop)) if _is_thing(name)}
    polling = function_name(here.tree, where.line)
    found: dict[tuple[str, int], Frame] = {}
    for file, tree in sources.user_trees():
        for node in walk(tree):
            line = getattr(node, "lineno", 0)
            if not line or asked.isdisjoint(_changed(node)):
                continue
            function = function_name(tree, line)
            polled = file == where.file and holds(here.function, line) and function == polling
            if not polled and function not in names("makes_object"):
                found.setdefault((file, line), Frame(file, line, function))
            if len(found) > LISTED:
                return []
    return list(found.values())


def what_sets_keys(sources: Sources) -> list[Frame]:
    """The lines of the program that set keys of a store; [] where there are too many."""
    calls = [each for each in sources.user_calls(*names("store_setter")) if isinstance(each.call.func, ast.Attribute)]
    found = list(dict.fromkeys(each.at for each in calls if len(each.call.args) > 1))
    return found if len(found) <= LISTED else []


def functions_that_let_on(sources: Sources, lines: list[Frame], deep: int = DEEPEST) -> set[str]:
    """The names of the functions that come to these lines, by way of each other."""
    found = {each.function for each in lines} - {"<module>", "main"}
    for _ in range(deep):
        calls = sources.user_calls(*found) if found else []
        found |= {each.at.function for each in calls} - {"<module>", "main"}
    return found


def lines_in(tree: ast.AST, file: str, lines: list[Frame], functions: set[str]) -> list[int]:
    """The lines of the tree that let a polling process go on, or call a function that does."""
    own = [each.line for each in lines if each.file == file and holds(tree, each.line)]
    return sorted({*own, *(line for name in functions for line in calls_of(tree, name))})


def _is_thing(name: str) -> bool:
    """False for what only tells ranks and rounds apart."""
    return bool(name) and name != "self" and pattern("rank_word").search(name) is None


def _asked(sources: Sources, function: ast.AST, tests: list[ast.AST]) -> set[str]:
    """The names of the things that expressions ask: what methods are called on, what is given to functions, what has
    items or a value; and those of what local names are set to, and of what functions of the program answer."""
    found: set[str] = set()
    given: dict[ast.AST, dict[str, list[ast.expr]]] = {}
    seen: set[tuple[ast.AST | None, str]] = set()
    coming = [(function, test) for test in tests]
    for _ in range(DEEPEST + 1):
        now, coming = coming, []
        for around, node in now:
            called = {id(n.func) for n in walk(node) if isinstance(n, ast.Call)}
            for part in walk(node):
                if isinstance(part, ast.Name | ast.Attribute) and id(part) not in called:
                    found.add(last_name(part))
                name = part.id if isinstance(part, ast.Name) else ""
                if name and (around, name) not in seen:
                    seen.add((around, name))
                    if around not in given:
                        given[around] = _given(around)
                    coming += [(around, value) for value in given[around].get(name, ())]
                called_name = last_name(part.func) if isinstance(part, ast.Call) else ""
                if called_name and (None, called_name) not in seen:
                    seen.add((None, called_name))
                    coming += _answers(sources, called_name)
    return found


def _given(function: ast.AST) -> dict[str, list[ast.expr]]:
    """Name → what the function sets it to."""
    found: dict[str, list[ast.expr]] = {}
    for each in (node for node in walk(function) if isinstance(node, ast.Assign)):
        for target in each.targets:
            found.setdefault(last_name(target), []).append(each.value)
    return found


def _answers(sources: Sources, function: str) -> list[tuple[ast.AST, ast.AST]]:
    """(the only function of the program of that name, what it returns) for each of its answers."""
    bodies = [body for _, body in sources.user_definitions(function)]
    answers = (n for body in bodies if len(bodies) == 1 for n in walk(body))
    return [(bodies[0], n.value) for n in answers if isinstance(n, ast.Return) and n.value is not None]


def _changed(node: ast.AST) -> Iterator[str]:
    """The names of what a statement or a call changes: also of a store, a file, a lock."""
    yield from written(node)
    if not isinstance(node, ast.Call) or last_name(node.func) not in _changing():
        return
    if last_name(node.func) in names("store_counter") and len(node.args) > 1 and text_of(node.args[1]) == "0":
        return
    if isinstance(node.func, ast.Attribute):
        yield last_name(node.func.value)
    yield from (last_name(each) for each in node.args if isinstance(each, ast.Name | ast.Attribute))


def _changing() -> tuple[str, ...]:
    return tuple(name for kind in _CHANGES for name in names(kind))


def skipped_lines(tree: ast.AST, line: int, lines: list[int]) -> list[int]:
    """Those of ``lines`` that who has run ``line``, and left its function or the round there, did not come to.

    Examples: line 3 of `if not rows: ⏎ return 0 ⏎ self.turn.give_to(next)` → that behind it; of `except OSError: ⏎
    log(e)`, those in the body that was tried.
    """
    here = enclosing_function(tree, line)
    tries = [n for n in walk(here) if isinstance(n, ast.Try)]
    tried = [n for n in tries if any(holds(handler, line) for handler in n.handlers)]
    if tried:
        body = tried[-1].body
        return [each for each in lines if body[0].lineno <= each <= (body[-1].end_lineno or 0)]
    suites = [
        (n.body if any(holds(s, line) for s in n.body) else n.orelse, n)
        for n in walk(here)
        if isinstance(n, ast.If) and holds(n, line) and n.lineno != line
    ]
    if not suites:
        return []
    suite, node = min(suites, key=lambda each: (each[1].end_lineno or 0) - each[1].lineno)
    inside = [each for each in lines if any(holds(s, each) for s in suite)]
    jumps = bool(suite) and isinstance(suite[-1], ast.Return | ast.Continue | ast.Break | ast.Raise)
    beside = [each for each in lines if holds(node, each)]
    after = [each for each in lines if each > (node.end_lineno or 0) and holds(here, each)] if jumps else []
    return [] if inside else [*beside, *after]
