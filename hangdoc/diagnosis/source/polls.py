"""Loops that poll for files, or for the store, and the lines that would end them, as the source shows both."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from hangdoc.diagnosis.bounds import DEEPEST
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.sources import Sources, UserCall
from hangdoc.diagnosis.source.syntax import (
    enclosing_function,
    holds,
    innermost_loop,
    last_name,
    text_of,
    walk,
)
from hangdoc.model.process import Frame, Stack

_ENDED_BY = {"asks_store": "fills_store", "asks_files": "makes_file"}
"""What a polling loop calls → what ends it."""
_FILES = ("open", *names("writes_file"))
"""What makes a file as well, in one of several ways to call it."""

_Asked = tuple[ast.Call, ast.AST, ast.AST]
"""A call that asks whether something is there, the expression that it is part of, and the function around it."""


@dataclass(frozen=True, slots=True)
class Ending:
    """The line ``at`` would end the loop in which a process polls; ``removes``: it waits until a file is gone."""

    at: Frame
    removes: bool = False


def what_ends_polling(sources: Sources, stack: Stack) -> Ending | None:
    """The line that makes, or removes, what a process polls for; None where it may be one of several such lines.

    Examples: `while store.add(votes, 0) < world: ⏎ sleep(1)` → the only other `store.add(votes, 1)`; `while
    marker.exists(): ⏎ sleep(1)` → the only `marker.unlink()`.
    """
    where = next(iter(user_stack(stack)), None)
    tree = sources.function(where.file, where.line) if where is not None else None
    if where is None or tree is None:
        return None
    inner, function = innermost_loop(tree, where.line), enclosing_function(tree, where.line)
    for asked, ending in _ENDED_BY.items():
        asks = list(_asking(sources, inner, function, names(asked))) if inner is not None else []
        if inner is None or not asks:
            continue
        stores = {object_of(call) for call, _, _ in asks}
        of_files = asked == "asks_files"
        removes = of_files and all(_waits_until_gone(inner, call) for call, _, _ in asks)
        called = names("removes_file") if removes else (*names(ending), *(_FILES if of_files else ()))
        calls = [
            each
            for each in sources.user_calls(*called)
            if (not of_files or removes or makes_file(each.call, each.function))
            and not (each.file == where.file and inner.lineno <= each.call.lineno and holds(function, each.call.lineno))
            and (of_files or object_of(each.call) in stores)
        ]
        at = _meant(sources, asks, calls)
        if at is not None:
            return Ending(at, removes)
    return None


def _waits_until_gone(loop: ast.AST, call: ast.Call) -> bool:
    """True for the call in `while marker.exists():`, and in `if not marker.exists(): ⏎ break`."""
    asked = text_of(call)
    if isinstance(loop, ast.While) and any(node is call for node in walk(loop.test)):
        return text_of(loop.test) == asked
    leaving = (n for n in walk(loop) if isinstance(n, ast.If) and isinstance(n.body[-1], ast.Break | ast.Return))
    return any(isinstance(n.test, ast.UnaryOp) and text_of(n.test.operand) == asked for n in leaving)


def makes_file(call: ast.Call, function: ast.AST) -> bool:
    """True for a call by which a file comes to be there: `mark.touch()`, `open(path, "w")`, `torch.save(state, path)`.

    A source's texts are masked as a rule: then an `open` with a mode counts where the function around it writes.
    """
    called = last_name(call.func)
    if called != "open":
        return called in names("makes_file") or called in names("writes_file")
    given = [word.value for word in call.keywords if word.arg == "mode"]
    given = given or call.args[1 if isinstance(call.func, ast.Name) else 0 :][:1]
    mode = given[0].value if given and isinstance(given[0], ast.Constant) else None
    if not isinstance(mode, str):
        return False
    called_there = {last_name(n.func) for n in walk(function) if isinstance(n, ast.Call)}
    masked = not mode.strip("*…")
    return not called_there.isdisjoint(names("writes_to_file")) if masked else not set("wxa").isdisjoint(mode)


def polls_for_file(sources: Sources, where: Frame) -> bool:
    """True if the innermost loop around the line asks for a file: `while not path.exists(): ⏎ time.sleep(1)`. What
    lists a folder may wait for several, of several ranks."""
    tree = sources.function(where.file, where.line)
    loop = innermost_loop(tree, where.line)
    if tree is None or loop is None:
        return False
    asks = list(_asking(sources, loop, enclosing_function(tree, where.line), names("asks_files")))
    return bool(asks) and not any(last_name(call.func) in names("lists_files") for call, _, _ in asks)


def calls_in_its_loop(sources: Sources, stack: Stack, called: Collection[str]) -> bool:
    """True if the innermost loop around the stack's innermost line makes a call of one of these names.

    Example: `while True: ⏎ try: ⏎ sock.connect(address) ⏎ except OSError: ⏎ sleep(1)`, at the sleep, and 'connect'.
    """
    where = next(iter(user_stack(stack)), None)
    tree = sources.function(where.file, where.line) if where is not None else None
    loop = innermost_loop(tree, where.line) if tree is not None and where is not None else None
    calls = (n for n in walk(loop) if isinstance(n, ast.Call)) if loop is not None else ()
    return any(last_name(call.func) in called for call in calls)


def _asking(sources: Sources, loop: ast.AST, function: ast.AST, called: Collection[str]) -> Iterator[_Asked]:
    """The calls of these names in the loop, or in a function that it calls."""
    found = list(_calls_with_text(loop, function, called))
    yield from found
    for name in {} if found else dict.fromkeys(last_name(n.func) for n in walk(loop) if isinstance(n, ast.Call)):
        bodies = sources.user_definitions(name)
        if len(bodies) == 1:
            yield from _calls_with_text(bodies[0][1], bodies[0][1], called)


def _calls_with_text(body: ast.AST, function: ast.AST, called: Collection[str]) -> Iterator[_Asked]:
    for node in walk(body):
        whole = getattr(node, "test", node) if isinstance(node, ast.If | ast.While) else node
        if isinstance(whole, ast.expr | ast.Assign | ast.Return) and (whole is not node or isinstance(node, ast.stmt)):
            for call in walk(whole):
                if isinstance(call, ast.Call) and last_name(call.func) in called:
                    yield call, whole, function


def _meant(sources: Sources, asks: list[_Asked], calls: list[UserCall]) -> Frame | None:
    """The line of the only call that can make it; else of the only one that makes a mark, a file with nothing in it;
    else of the one that has most names in common with what is asked for."""
    places: dict[Frame, set[str]] = {}
    for each in calls:
        at = each.at
        places.setdefault(at, set()).update(_parts(sources, each.call, each.function))
    marks = [at for at, parts in places.items() if parts.intersection(names("makes_mark"))]
    wanted = {name for _, whole, function in asks for name in _parts(sources, whole, function)}
    shared = {at: len(wanted & parts) for at, parts in places.items()}
    best = [at for at, count in shared.items() if count and count == max(shared.values())]
    functions = {(at.file, at.function) for at in best}
    last = [max(best, key=lambda at: at.line or 0)] if len(functions) == 1 else []
    return next((one[0] for one in (list(places), marks, best, last) if len(one) == 1), None)


def _parts(sources: Sources, node: ast.AST, function: ast.AST, steps: int = DEEPEST) -> set[str]:
    """The names of what the expression is made of, also by what the function sets names to, and by what functions of
    the user's return: {'path', 'done_dir', …} of `path(name).touch()`, with `return self.done_dir / name`."""
    parts = list(walk(node))
    found = set(map(last_name, parts))
    # What is named more than once is looked up once.
    for name in dict.fromkeys(each.id for each in parts if isinstance(each, ast.Name)) if steps else ():
        for value in _values(function, name):
            found |= _parts(sources, value, function, steps - 1)
    for name in dict.fromkeys(last_name(each.func) for each in parts if isinstance(each, ast.Call)) if steps else ():
        bodies = sources.user_definitions(name)
        for _, body in bodies if len(bodies) == 1 else ():
            returns = [n.value for n in walk(body) if isinstance(n, ast.Return) and n.value is not None]
            found = found.union(*(_parts(sources, value, body, steps - 1) for value in returns))
    return found - {"", "self"}


def _values(function: ast.AST, name: str) -> Iterator[ast.expr]:
    """What the function sets the name to, in plain assignments, one of several targets included."""
    for node in (each for each in walk(function) if isinstance(each, ast.Assign)):
        for target in node.targets:
            if isinstance(target, ast.Name) and target.id == name:
                yield node.value
            elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = zip(target.elts, node.value.elts, strict=False)
                yield from (value for each, value in pairs if isinstance(each, ast.Name) and each.id == name)


def object_of(call: ast.Call) -> str:
    """'store' of `self.store.add(…)`."""
    return last_name(call.func.value) if isinstance(call.func, ast.Attribute) else ""
