"""Where both arms of a condition on the rank make the call that one side waits in, and only stacks are there to see.

The other arm's call is the partner: a leader sends its commands and the workers take them, a first stage feeds a
pipeline and the others follow. The condition then only says who does which; what ended or skipped the calls of the
culprits' own arm is what counts. Example:

    if rank == 0:
        lead(jobs)          # `while jobs: … dist.broadcast(…)`, which rank 0 has left
    else:
        follow()            # ranks 1 and 2 wait in dist.broadcast
    dist.barrier()          # rank 0 waits here
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from hangdoc.diagnosis.bounds import DEEPEST
from hangdoc.diagnosis.condition.branch_point import BranchPoint, branch_point
from hangdoc.diagnosis.condition.elsewhere.made_objects import class_of
from hangdoc.diagnosis.condition.scores import score_of_condition, score_of_loop
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.names import is_rank_name
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.guards import CONDITIONS, guards
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import (
    LOOPS,
    dotted,
    enclosing_function,
    function_name,
    holds,
    last_name,
    walk,
)
from hangdoc.model.process import Frame, Stack


def in_other_arm(sources: Sources, point: BranchPoint, theirs: Stack, *, of_group: bool = False) -> list[BranchPoint]:
    """What is around the call of ``theirs`` in the arm of ``point`` that this side did not take, outermost first; []
    where that arm has no such call, or ``of_group`` none that names the same group.

    ``theirs`` is the stack of the guarded side. Functions are found by their names; the one that this side entered is
    no part of the other arm, though it may have the same name. A call in a group that is called alike comes first: of
    several parts, that one is the partner's. Example: as above → `while jobs:` in lead().
    """
    frames = user_stack(theirs)
    tree = sources.function(point.file, point.guard.line)
    if not frames or tree is None or point.guard.kind not in CONDITIONS:
        return []
    search = _Search(sources, _called_at(sources, frames[0]), _entered(sources, point, frames))
    group = _group_at(sources, frames[0])
    named = (replace(search, group=group),) if group else ()
    for each in named if of_group else (*named, search):
        ways = each.of_another_class(point, frames) if point.made else each.of_other_arm(tree, point)
        for way in ways:
            return [around for frame in way for around in _around(sources, frame)]
    return []


def in_chosen_beside(
    sources: Sources, point: BranchPoint, theirs: Stack, *, of_group: bool = False
) -> list[BranchPoint]:
    """The same for a loop in a method, where the program makes an object of that class or of another one that has such
    a method: the other side had the other one.

    Example: `node = Leader() if rank == 0 else Worker()`, and a loop of Worker.run() → what is around the partner of
    its call in Leader.run().
    """
    frames = user_stack(theirs)
    inside = next((f for f in frames if (f.file, plain(f.function)) == (point.file, point.function)), None)
    if inside is None or not class_of(inside):
        return []
    group = _group_at(sources, frames[0]) if of_group else ""
    if of_group and not group:
        return []
    search = _Search(sources, _called_at(sources, frames[0]), None, group)
    beside = _made_beside(sources, class_of(inside))
    for file in sources.files() if beside else ():
        for _, tree in sources.trees(file):
            for owner in (n for n in walk(tree) if isinstance(n, ast.ClassDef) and n.name in beside):
                for method in owner.body:
                    if isinstance(method, ast.FunctionDef) and method.name == point.function:
                        way = search.way(file, method, method, frozenset())
                        if way is not None or not of_group:
                            return [each for frame in way or () for each in _around(sources, frame)]
    return []


def _made_beside(sources: Sources, name: str) -> set[str]:
    """The classes of which one condition makes an object or, else, one of the class ``name``."""
    found: set[str] = set()
    for _, tree in sources.user_trees():
        for node in (each for each in walk(tree) if isinstance(each, ast.If | ast.IfExp)):
            arms = [
                {last_name(call.func) for each in arm for call in walk(each) if isinstance(call, ast.Call)}
                for arm in (_as_list(node.body), _as_list(node.orelse))
            ]
            for mine, other in (arms, arms[::-1]):
                found |= other - mine if name in mine - other else set()
    return found


def _as_list(arm: ast.expr | list[ast.stmt]) -> Sequence[ast.AST]:
    return arm if isinstance(arm, list) else [arm]


def _entered(sources: Sources, point: BranchPoint, frames: Stack) -> _Function | None:
    """The function that the guarded side called from under the condition; None where its call is right there."""
    for inner, outer in pairwise(frames):
        if (outer.file, plain(outer.function), outer.line) == (point.file, point.function, point.line):
            tree = sources.function(inner.file, inner.line)
            start = getattr(enclosing_function(tree, inner.line), "lineno", 0) if tree is not None else 0
            return inner.file, start
    return None


def _called_at(sources: Sources, frame: Frame) -> frozenset[str]:
    """How the calls at the line read, each by its last two names: {'schedule.step'} of `self.schedule.step(x)`."""
    tree = sources.function(frame.file, frame.line)
    calls = (n for n in walk(tree) if isinstance(n, ast.Call) and holds(n, frame.line)) if tree is not None else ()
    return frozenset(name for call in calls if "." in (name := _short(call)))


def _group_at(sources: Sources, frame: Frame) -> str:
    """What the calls at the line name their group by, if all alike: 'evaluation' of `group=self.groups.evaluation`."""
    tree = sources.function(frame.file, frame.line)
    calls = (n for n in walk(tree) if isinstance(n, ast.Call) and holds(n, frame.line)) if tree is not None else ()
    found = {name for call in calls if (name := _group(call))}
    return found.pop() if len(found) == 1 else ""


def _group(call: ast.Call) -> str:
    return next((last_name(each.value) for each in call.keywords if each.arg == "group"), "")


def _short(call: ast.Call) -> str:
    return ".".join(dotted(call.func).split(".")[-2:])


def _other_arm(tree: ast.AST, point: BranchPoint) -> list[ast.AST]:
    """The statements of the arm that the guarded side did not take.

    After an `if …: return` that the guarded side took, these are the statements that follow it.
    """
    found: list[ast.AST] = []
    for block in _blocks(tree):
        for at, node in enumerate(block):
            if not isinstance(node, ast.If) or node.lineno != point.guard.line:
                continue
            arm: list[ast.stmt] = node.orelse if point.guard.taken else node.body
            jumps = isinstance(node.body[-1], ast.Return | ast.Continue)
            found += arm or (block[at + 1 :] if jumps and point.guard.taken else [])
    return found


def _blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                yield block


_Function = tuple[str, int]
"""(file, first line) of a function."""


@dataclass(frozen=True, slots=True)
class _Search:
    """A search for calls that read like one of ``wanted``, in all functions but ``entered``; with a ``group``, for
    those that name it."""

    sources: Sources
    wanted: frozenset[str]
    entered: _Function | None
    group: str = ""

    def of_other_arm(self, tree: ast.AST, point: BranchPoint) -> Iterator[list[Frame]]:
        """The ways from the other arm, each without the arm's own line."""
        for node in _other_arm(tree, point):
            way = self.way(point.file, tree, node, frozenset())
            if way is not None and len(way) > 1:
                yield way[1:]

    def of_another_class(self, point: BranchPoint, frames: Stack) -> Iterator[list[Frame]]:
        """The ways from the methods of the same name as that of ``point.made`` which the guarded side is in."""
        methods = [frame for frame in frames if class_of(frame) == point.made]
        for file, function in self.sources.user_functions(plain(methods[-1].function)) if methods else ():
            if function.body[0].lineno <= methods[-1].line <= (function.end_lineno or 0):
                continue
            way = self.way(file, function, function, frozenset())
            if way is not None:
                yield way

    def way(self, file: str, tree: ast.AST, node: ast.AST, seen: frozenset[str]) -> list[Frame] | None:
        """The lines of a way from ``node`` to a wanted call, outermost first; None where there is none.

        Example: from `lead(jobs)` in main() → [line 2 of main, line 9 of lead].
        """
        loops = [each for each in walk(node) if isinstance(each, LOOPS)]
        calls = [each for each in walk(node) if isinstance(each, ast.Call)]
        # What comes again and again, before what ends it: a last word after the loop.
        for call in sorted(calls, key=lambda each: not any(holds(loop, each.lineno) for loop in loops)):
            frame = Frame(file, call.lineno, function_name(tree, call.lineno))
            if _short(call) in self.wanted and self.group in ("", _group(call)):
                return [frame]
            name = last_name(call.func)
            if not name or name in seen or len(seen) >= DEEPEST:
                continue
            for other, function in self.sources.user_functions(name):
                if (other, function.lineno) == self.entered:
                    continue
                way = self.way(other, function, function, seen | {name})
                if way is not None:
                    return [frame, *way]
        return None


def _around(sources: Sources, frame: Frame) -> Iterable[BranchPoint]:
    """The loops and conditions around the line, as points at which the side that is gone has left it."""
    tree = sources.function(frame.file, frame.line)
    for guard in guards(tree, frame.line) if tree is not None else ():
        if guard.kind == "loop":
            point = branch_point(guard, frame, 1, score_of_loop(guard, counts_differ=False))
            yield replace(point, uneven=True, own_arm=True)
        elif guard.kind in CONDITIONS and not any(map(is_rank_name, guard.names)):
            point = branch_point(guard, frame, 1, score_of_condition(guard, rank_like=False, differs=False))
            yield replace(point, own_arm=True)
