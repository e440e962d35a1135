"""What decides whether the call is made that ranks poll for, by the store or by files, where one place makes it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hangdoc.diagnosis.causes.call_conditions import conditions_of_call, loops_of_call, may_differ
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.files import Asked, asking, makes_file, polling_loop
from hangdoc.diagnosis.source.sources import Sources, UserCall
from hangdoc.diagnosis.source.syntax import enclosing_function, holds, last_name, text_of
from hangdoc.model.message import Condition
from hangdoc.model.process import Frame, Stack

_MOST_STEPS = 3
"""Names and functions that something is made of, one by way of the other; chosen by hand."""
_ENDED_BY = {"asks_store": "fills_store", "asks_files": "makes_file"}
"""What a polling loop calls → what ends it."""
_FILES = ("open", *names("writes_file"))
"""What makes a file as well, in one of several ways to call it."""


def made_elsewhere(sources: Sources, stack: Stack) -> tuple[Frame, list[Condition]] | None:
    """(the line that makes what a process polls for, the conditions around it); None where it may be one of several
    such lines, or nothing decides about it.

    Example: `while store.add(votes, 0) < world: ⏎ sleep(1)`, and `vote()` returns under `if not self.dirty:` before
    its `store.add(votes, 1)` → that line, and the `if`.
    """
    where = next(iter(user_stack(stack)), None)
    tree = sources.function(where.file, where.line) if where is not None else None
    if where is None or tree is None:
        return None
    inner = polling_loop(tree, where.line)
    for asked, ending in _ENDED_BY.items():
        function = enclosing_function(tree, where.line)
        asks = list(asking(sources, inner, function, names(asked))) if inner is not None else []
        stores = {_object(call) for call, _, _ in asks}
        if inner is None or not asks:
            continue
        calls = [
            each
            for each in sources.user_calls(*names(ending), *(_FILES if asked == "asks_files" else ()))
            if (asked != "asks_files" or makes_file(each.call, each.function))
            and not (each.file == where.file and inner.lineno <= each.call.lineno and holds(function, each.call.lineno))
            and not _only_asks(each)
            and (asked == "asks_files" or _object(each.call) in stores)
        ]
        at = _meant(sources, asks, calls)
        if at is not None:
            deciding = [c for c in conditions_of_call(sources, at, stack) if may_differ(sources, at, c)]
            return (at, deciding) if deciding else None
    return None


def set_elsewhere(sources: Sources, where: Frame) -> tuple[Frame, list[Condition]] | None:
    """(line, conditions) of the only call under conditions that sets a key of the store in which the line waits for
    one, else of the only call in a loop; None where there is no such call, or several.

    Examples: `self.store.get(plan)`, and `announce()` returns under `if self.load > limit:` before its
    `self.store.set(plan, text)` → that line, and the `if`; `for r in pool.usable(): ⏎ store.set(name, r)`
    → the second line, and the loop.
    """
    tree = sources.function(where.file, where.line)
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and holds(n, where.line)] if tree is not None else []
    stores = {_object(call) for call in calls if last_name(call.func) in names("waits_for_key")} - {""}
    found: dict[Frame, list[Condition]] = {}
    looped: dict[Frame, list[Condition]] = {}
    for each in sources.user_calls(*names("fills_store")):
        at = Frame(each.file, each.call.lineno, getattr(each.function, "name", "<module>"))
        if _object(each.call) in stores and not _only_asks(each) and at not in found:
            deciding = [c for c in conditions_of_call(sources, at, (where,)) if may_differ(sources, at, c)]
            found.update({at: deciding} if deciding else {})
            looped[at] = loops_of_call(sources, at, (where,))
    if not found and len(looped) == 1:
        found = {at: loops for at, loops in looped.items() if loops}
    return next(iter(found.items())) if len(found) == 1 else None


def _meant(sources: Sources, asks: list[Asked], calls: list[UserCall]) -> Frame | None:
    """The line of the only call that can make it; else of the only one that makes a mark, a file with nothing in it;
    else of the one that has most names in common with what is asked for."""
    places: dict[Frame, set[str]] = {}
    for each in calls:
        at = Frame(each.file, each.call.lineno, getattr(each.function, "name", "<module>"))
        places.setdefault(at, set()).update(_parts(sources, each.call, each.function))
    marks = [at for at, parts in places.items() if parts.intersection(names("makes_mark"))]
    wanted = {name for _, whole, function in asks for name in _parts(sources, whole, function)}
    shared = {at: len(wanted & parts) for at, parts in places.items()}
    best = [at for at, count in shared.items() if count and count == max(shared.values())]
    return next((one[0] for one in (list(places), marks, best) if len(one) == 1), None)


def _parts(sources: Sources, node: ast.AST, function: ast.AST, steps: int = _MOST_STEPS) -> set[str]:
    """The names of what the expression is made of, also by what the function sets names to, and by what functions of
    the user's return: {'path', 'done_dir', …} of `path(name).touch()`, with `return self.done_dir / name`."""
    found: set[str] = set()
    for each in ast.walk(node):
        name = last_name(each)
        found.add(name)
        if isinstance(each, ast.Name) and steps:
            for value in _values(function, each.id):
                found |= _parts(sources, value, function, steps - 1)
        elif isinstance(each, ast.Call) and steps:
            bodies = sources.user_definitions(last_name(each.func))
            for _, body in bodies if len(bodies) == 1 else ():
                returns = [n.value for n in ast.walk(body) if isinstance(n, ast.Return) and n.value is not None]
                found = found.union(*(_parts(sources, value, body, steps - 1) for value in returns))
    return found - {"", "self"}


def _values(function: ast.AST, name: str) -> Iterator[ast.expr]:
    """What the function sets the name to, in plain assignments, one of several targets included."""
    for node in (each for each in ast.walk(function) if isinstance(each, ast.Assign)):
        for target in node.targets:
            if isinstance(target, ast.Name) and target.id == name:
                yield node.value
            elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = zip(target.elts, node.value.elts, strict=False)
                yield from (value for each, value in pairs if isinstance(each, ast.Name) and each.id == name)


def _object(call: ast.Call) -> str:
    """'store' of `self.store.add(…)`."""
    return last_name(call.func.value) if isinstance(call.func, ast.Attribute) else ""


def _only_asks(each: UserCall) -> bool:
    """True for `store.add(key, 0)`, which reads a count."""
    return last_name(each.call.func) == "add" and (len(each.call.args) < 2 or text_of(each.call.args[1]) == "0")
