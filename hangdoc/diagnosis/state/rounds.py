"""A loop that goes on from item to item between two looks: who sleeps in it is slow, and waits for nothing.

Example: `for index in range(self.count): ⏎ self.read(index)`, whose read() sleeps, with index = 35 in the first look
and 43 in the last. A loop that can be left from within may be polling: its rounds say nothing.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.guards import Guard, guards
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import FUNCTIONS, last_name, loops_of, walk
from hangdoc.model.process import Frame, Process, Stack


@dataclass(frozen=True, slots=True)
class GoingRound:
    """``name`` counts the rounds of ``loop``, and was ``then`` and is ``now``."""

    frame: Frame
    loop: Guard
    name: str
    then: str
    now: str


def going_round(process: Process, sources: Sources) -> GoingRound | None:
    """The outermost `for` loop of the user's on the main thread's way that had another item in the first look than in
    the last, and that nothing but its end leads out of; None where there is none."""
    looks = [look.main for look in (process.looks[0], process.looks[-1])] if len(process.looks) > 1 else []
    stacks = [_users(main.frames) if main is not None else [] for main in looks]
    if len(stacks) < 2 or not stacks[0] or _places(stacks[0]) != _places(stacks[1]):
        return None
    for then, now in zip(*stacks, strict=True):
        tree = sources.function(now.file, now.line)
        for guard in guards(tree, now.line) if tree is not None else []:
            node = _bounded(tree, guard) if tree is not None and guard.kind == "loop" and not guard.in_header else None
            for name in sorted(_items(node)) if node is not None else ():
                values = [{each.name: each.value for each in frame.locals}.get(name, "") for frame in (then, now)]
                if all(map(str.isdecimal, values)) and values[0] != values[1]:
                    return GoingRound(now, guard, name, *values)
    return None


def _users(stack: Stack) -> list[Frame]:
    return list(reversed(user_stack(stack)))


def _places(frames: list[Frame]) -> list[tuple[str, str]]:
    return [(frame.file, plain(frame.function)) for frame in frames]


def _bounded(tree: ast.AST, loop: Guard) -> ast.For | None:
    """The `for` at that line, if it goes over something that ends, and nothing in its body leaves it."""
    node = next((n for n in loops_of(tree) if isinstance(n, ast.For) and n.lineno == loop.line), None)
    if node is None or (isinstance(node.iter, ast.Call) and last_name(node.iter.func) in names("never_ends")):
        return None
    return None if any(map(_leaves, node.body)) else node


def _leaves(node: ast.AST) -> bool:
    if isinstance(node, FUNCTIONS):
        return False
    if isinstance(node, ast.Break | ast.Return | ast.Raise):
        return True
    return any(map(_leaves, ast.iter_child_nodes(node)))


def _items(loop: ast.For) -> set[str]:
    return {node.id for node in walk(loop.target) if isinstance(node, ast.Name)}
