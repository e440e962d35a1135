"""Where the handler was registered that a library calls on one side only.

A library calls the handler from its loop, without a condition around the call. What decides is around the line that
gave the library the function. Example:

    if rank == 0:
        engine.add_event_handler(Events.EPOCH_COMPLETED, self.validate)    # rank 0 waits below validate()

A line under no condition goes by what runs its function: the conditions around the calls of that function, or the table
that it is looked up in. Examples: `if rank == 0: ⏎ attach_validation(engine)`, which registers validate(); and

    PLAN = {"main": [attach_log, attach_validation], "worker": [attach_log]}
    role = "main" if rank == 0 else "worker"
    for attach in PLAN[role]:

Only calls that are known to register something count: whoever is given a function may do anything else with it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice

from hangdoc.diagnosis.bounds import TRIED
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.frames.names import names, pattern
from hangdoc.diagnosis.source.guards import CONDITIONS, Guard, guards
from hangdoc.diagnosis.source.settings import place_of, settings
from hangdoc.diagnosis.source.sources import Sources, UserCall
from hangdoc.diagnosis.source.syntax import dotted, holds, names_in, text_of, walk
from hangdoc.model.process import Frame, Stack


@dataclass(frozen=True, slots=True)
class Registered:
    """A line of the user's that registers the handler ``name``. ``around``: the conditions around it, outermost first;
    ``own``: it names the very function, as `self.name` in the class of the handler, or as the decorator of it;
    ``level``: the place of the handler on the way; ``table``: around it stands the lookup by the rank of the function
    that registers it."""

    name: str
    frame: Frame
    around: tuple[Guard, ...]
    own: bool
    level: int
    table: bool = False


def registered_on_the_way(sources: Sources, way: Stack, other: Stack, at: int) -> list[Registered]:
    """The lines that register the handlers that are found only on ``way``, from its frame ``at`` on.

    Both are outermost first, and may lack the library's frames. Nothing is said of a function that its caller calls by
    name, nor of a handler that some line registers under no condition. Example: as above, rank 0 below validate() → the
    line under `if rank == 0:`.
    """
    theirs = {plain(frame.function) for frame in other}
    found: list[Registered] = []
    for level in range(max(at, 1), len(way)):
        frame, caller = way[level], way[level - 1]
        name = plain(frame.function)
        by_name = f"{name}(" in (sources.line(caller.file, caller.line) or "")
        if is_library(frame) or by_name or name in theirs or name.startswith(("<", "__")):
            continue
        theirs.add(name)
        lines = list(islice(_registering(sources, frame, level), TRIED + 1))
        found += lines if all(each.around for each in lines) and len(lines) <= TRIED else []
    return found


def _registering(sources: Sources, handler: Frame, level: int) -> Iterator[Registered]:
    """Each call in the user's code that registers the function of the frame, and each decorator of it that does."""
    name = plain(handler.function)
    owner = _class_around(sources, handler.file, handler.line)
    decorators = {
        (file, each.lineno, each.col_offset): function.lineno
        for file, function in sources.functions(name)
        for each in function.decorator_list
    }
    seen: set[tuple[str, int]] = set()
    for each in sources.user_calls_like(pattern("registers_callback")):
        defined = decorators.get((each.file, each.call.lineno, each.call.col_offset))
        if dotted(each.call.func) in names("registers_handler"):
            continue  # the interpreter calls those, and no library's loop
        given = _given(sources, each, name, owner) if defined is None else "own"
        line = each.call.lineno if defined is None else defined
        if not given or (each.file, line) in seen:
            continue
        seen.add((each.file, line))
        frame = Frame(each.file, line, getattr(each.function, "name", "<module>"))
        around = tuple(g for g in guards(each.tree, each.call.lineno) if g.kind in CONDITIONS)
        found = Registered(name, frame, around, given == "own", level)
        run = list(islice(_running(sources, each), TRIED)) if not around else []
        yield from (
            replace(found, frame=f, around=guards, table=table) for f, guards, table in run or [(frame, around, False)]
        )


def _running(sources: Sources, registers: UserCall) -> Iterator[tuple[Frame, tuple[Guard, ...], bool]]:
    """Where the function runs that the call stands in, with what decides it there, and whether that is a table: each
    call of it, or where it is looked up. Nothing where it is used in any other way."""
    name = getattr(registers.function, "name", "")
    if not name or len(sources.user_definitions(name)) != 1:
        return
    calls = sources.user_calls(name)
    tables = {(file, table): held for file, tree in sources.user_trees() for table, held in _tables_with(tree, name)}
    uses = {(file, n.lineno, n.col_offset) for file, tree in sources.user_trees() for n in _named(tree, name)}
    if len(uses) != len(calls) + sum(tables.values()) or any(
        not isinstance(each.call.func, ast.Name) for each in calls
    ):
        return
    for each in calls:
        frame = each.at
        yield frame, tuple(g for g in guards(each.tree, each.call.lineno) if g.kind in CONDITIONS), False
    for file, table in tables:
        yield from _looked_up_in(sources, file, table, name)


def _named(tree: ast.AST, name: str) -> list[ast.Name]:
    return [n for n in walk(tree) if isinstance(n, ast.Name) and n.id == name]


def _tables_with(tree: ast.AST, function: str) -> Iterator[tuple[str, int]]:
    """(name, how often it holds it) of the dicts of which some entries, and not all, hold that function."""
    for node in walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict) and dotted(node.targets[0]):
            held = [len(_named(value, function)) for value in node.value.values]
            if any(held) and not all(held):
                yield dotted(node.targets[0]), sum(held)


def _looked_up_in(
    sources: Sources, file: str, table: str, name: str
) -> Iterator[tuple[Frame, tuple[Guard, ...], bool]]:
    """Each `TABLE[key]` in the file, whose key tests the rank in what it is set to: `attach_log in PLAN[role]`."""
    seen: set[int] = set()
    lookups = (n for _, tree in sources.trees(file) for n in walk(tree) if isinstance(n, ast.Subscript))
    for node in (n for n in lookups if dotted(n.value) == table and isinstance(n.ctx, ast.Load)):
        key, at = node.slice, place_of(sources, file, node.lineno)
        if at is None or node.lineno in seen:
            continue
        seen.add(node.lineno)
        values = [key, *(s.value for s in settings(sources, at, key) if s.value is not None)]
        by_rank = any(pattern("rank_word").search(text_of(value)) for value in values)
        lines = (key.lineno, key.end_lineno or key.lineno)
        guard = Guard("expression", key.lineno, f"{name} in {text_of(node)}", True, names_in(key), lines)
        frame = Frame(file, key.lineno, getattr(at.function, "name", "<module>"))
        yield frame, (guard,) if by_rank else (), by_rank


def _given(sources: Sources, each: UserCall, name: str, owner: tuple[str, int] | None) -> str:
    """'own' if the call is given `self.name` in the class ``owner``, 'named' if it is given a function of that name;
    else ''. Nothing is said of another object's attribute where several classes have such a method."""
    values = [*each.call.args, *(word.value for word in each.call.keywords)]
    for value in values:
        if isinstance(value, ast.Attribute) and value.attr == name:
            within = _class_around(sources, each.file, each.call.lineno)
            if owner is not None and within == owner and dotted(value.value) == "self":
                return "own"
            if sources.methods(name) <= 1:
                return "named"
        elif isinstance(value, ast.Name) and value.id == name:
            return "named"
    return ""


def _class_around(sources: Sources, file: str, line: int) -> tuple[str, int] | None:
    """(file, first line) of the innermost class around the line, where it was captured."""
    found = [n for _, tree in sources.trees(file) for n in _classes(tree) if holds(n, line)]
    return (file, max(n.lineno for n in found)) if found else None


@lru_cache(maxsize=4096)
def _classes(tree: ast.AST) -> tuple[ast.ClassDef, ...]:
    return tuple(n for n in walk(tree) if isinstance(n, ast.ClassDef))
