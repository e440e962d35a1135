"""Which earlier call that makes a process group some ranks may have left out, by the condition that it is under."""

from __future__ import annotations

import ast

from hangdoc.diagnosis.condition.branch_point import is_rank_name
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.guards import CONDITIONS, Guard, guards
from hangdoc.diagnosis.source.queries import group_calls
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import function_name, holds, last_name, walk
from hangdoc.model.message import Condition, Place
from hangdoc.model.process import Stack


def made_under_condition(sources: Sources, now: Stack) -> tuple[Place, Condition] | None:
    """(line, condition) of the one call that a condition can skip and not the one that makes a group ``now``: above it
    in the same function, else in another one; None where there is none, or more than one.

    Examples: of `if self.first: ⏎ new_group(ends) ⏎ new_group()`, at the second call → the first one, and the `if`;
    `if side not in self.known: ⏎ self.known[side] = new_group(members)` in a function that no rank is in now.
    """
    for frame in user_stack(now):
        tree = sources.function(frame.file, frame.line)
        calls = [node for node in walk(tree) if isinstance(node, ast.Call)] if tree is not None else []
        called = {last_name(call.func) for call in calls if holds(call, frame.line)} & _makers(now)
        if tree is None:
            continue
        around = {guard.place for guard in guards(tree, frame.line)}
        found: dict[int, Guard] = {}
        for call in calls:
            if last_name(call.func) in called and call.lineno < frame.line:
                own = [g for g in guards(tree, call.lineno) if g.kind in CONDITIONS and g.place not in around]
                found.update({call.lineno: own[-1]} if own else {})
        if found:
            (line, guard), *more = found.items()
            return (Place(frame.file, line), _cited(guard, frame.file)) if not more else None
    return _made_elsewhere(sources, now) if now else None


def around_group(sources: Sources, stack: Stack) -> Condition | None:
    """The condition around the call that makes a group, in the innermost function on its way that has one; of several,
    one on the rank.

    Example: `if rank in members: ⏎ new_group(members)` → the `if`.
    """
    for frame in user_stack(stack):
        tree = sources.function(frame.file, frame.line)
        found = [g for g in guards(tree, frame.line) if g.kind in CONDITIONS][::-1] if tree is not None else []
        found.sort(key=lambda g: not any(map(is_rank_name, g.names)))
        if found:
            return _cited(found[0], frame.file) if "__name__" not in found[0].names else None
    return None


def _made_elsewhere(sources: Sources, now: Stack) -> tuple[Place, Condition] | None:
    """The same of the calls in other functions: under a condition in there, or around the only call of the function."""
    here = {(frame.file, plain(frame.function)) for frame in user_stack(now)}
    found: dict[tuple[str, int], Condition] = {}
    for file, tree in sources.user_trees():
        for line in group_calls(tree):
            name = function_name(tree, line)
            if (file, name) not in here and (file, line) not in found:
                own = _skipping(tree, line, file)
                found.update({(file, line): own} if own is not None else {})
    (at, condition), *more = found.items() if found else [(("", 0), None)]
    return (Place(*at), condition) if condition is not None and not more else None


def _skipping(tree: ast.AST, line: int, file: str) -> Condition | None:
    """The innermost condition that can skip the line; one around the test that something is made once, if there is."""
    found = [g for g in guards(tree, line) if g.kind in CONDITIONS][::-1]
    once = [g for g in found if made_once(g)]
    first = next((g for g in found if g not in once), found[0] if found else None)
    return _cited(first, file) if first is not None else None


def made_once(guard: Guard) -> bool:
    """True for the test that something is not there yet: `if key not in self.known:`."""
    return " is None" in guard.condition or " not in self." in guard.condition


def _cited(guard: Guard, file: str) -> Condition:
    return Condition(guard.condition, file, guard.line)


def _makers(now: Stack) -> set[str]:
    """The names under which what runs now may be called to make a group: `append` of `made.append(new_group())` is
    none. Example: mesh → DeviceMesh.__init__ → new_group → {'mesh', 'DeviceMesh', 'new_group', …}."""
    classes = {frame.function.rpartition(".")[0].rpartition(".")[2] for frame in now}
    return {*names("makes_group"), *(plain(frame.function) for frame in now), *classes} - {""}
