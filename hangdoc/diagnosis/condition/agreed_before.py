"""Whether ranks could agree on a condition right before it is tested: an all_reduce there has to be reached by all.

Example: side 0 is in the barrier of `if stale: ⏎ dist.barrier()` in save(), side 1 came past the call of save(), which
is under no condition: both came to the test. Where `if bad: ⏎ return` stands before that call, a rank may not have; an
all_reduce before `if stale:` would be one more call that some ranks leave out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.calls.history import Token
from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.stacks import Fork, fork, user_stack
from hangdoc.diagnosis.source.guards import Guard, guards
from hangdoc.diagnosis.source.settings import place_of, settings
from hangdoc.diagnosis.source.syntax import last_name, walk
from hangdoc.diagnosis.source.values import SideRanks
from hangdoc.model.process import Stack


def asks_within(point: BranchPoint, gap: Gap) -> bool:
    """True if the guarded side makes its call while it evaluates the condition. Example: `any(moved(p) for p in ps)`,
    whose moved() calls all_reduce: who sees True stops asking."""
    inside = (gap.mine, gap.theirs)[point.guarded]
    way = tuple(reversed(user_stack(inside.stack))) if inside is not None else ()
    called = {last_name(node.func) for node in _nodes(point.guard.condition) if isinstance(node, ast.Call)}
    at = next((i for i, f in enumerate(way) if (f.file, f.line) == (point.file, point.guard.line)), len(way))
    return any(plain(frame.function) in called for frame in way[at + 1 :])


def own_count(case: Case, point: BranchPoint) -> str:
    """What the condition tests that each rank counts for itself, one by one, and that was not seen to be the same on
    all ranks; '' where there is none. Example: `self.updates` of `if self.updates % self.every == 0:`."""
    at = place_of(case.sources, point.file, point.guard.line)
    nodes = list(_nodes(point.guard.condition)) if at is not None else []
    if any(isinstance(node, ast.BoolOp) for node in nodes):
        return ""  # another part of it may have decided
    for node in nodes:
        if at is None or not isinstance(node, ast.Name | ast.Attribute) or not isinstance(node.ctx, ast.Load):
            continue
        added = [each.node for each in settings(case.sources, at, node) if each.how == "counted"]
        ones = [n for n in added if isinstance(n, ast.AugAssign) and isinstance(n.value, ast.Constant)]
        name = ast.unparse(node)
        seen = case.values.of(point.file, point.function, name)
        if ones and not (len(seen) == len(case.ranks) and len(set(seen.values())) == 1):
            return name
    return ""


def all_come_to(case: Case, point: BranchPoint, gap: Gap, ranks: SideRanks) -> bool:
    """True if every rank of both sides came to the test on its way to where the sides diverged, by the source between
    the calls; where the source does not tell, if each has been in its function before."""
    inside = (gap.mine, gap.theirs)[point.guarded]
    if inside is None:
        return False
    known: dict[Stack, bool | None] = {(): None}  # many ranks are at few places
    for side, token in zip(ranks, (gap.mine, gap.theirs), strict=True):
        for rank in side:
            stack = _stack_at(case, rank, token)
            if stack not in known:
                known[stack] = _came(case, point, fork(inside.stack, stack))
            came = known[stack]
            if came is False or (came is None and not _has_been_there(case, rank, point)):
                return False
    return True


def _nodes(condition: str) -> Iterable[ast.AST]:
    """The nodes of a condition as the source writes it: 'if a % b == 0:', 'any(f(x) for x in xs)'."""
    text = condition.removeprefix("el").removeprefix("if ").removeprefix("while ").removesuffix(":")
    try:
        return list(walk(ast.parse(text, mode="eval")))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def _stack_at(case: Case, rank: int, token: Token | None) -> Stack:
    """Where the rank was at that call of its side; where it is now, of a side that made none."""
    history = next((h for h in case.histories if token is not None and h.key == token.group), None)
    call = history.at(rank, token.sequence) if history is not None and token is not None else None
    return (call.stack if call is not None else ()) or case.activities[rank].stack


def _came(case: Case, point: BranchPoint, where: Fork) -> bool | None:
    """True if who is on the second way must have come to the test of the first, False if something before the test can
    have led past it; None where the two ways have no function in common."""
    way = where.mine
    here = next((i for i, f in enumerate(way) if _is_tested_in(point, f.file, f.function, f.line)), None)
    if here is None:
        return None
    if where.common > here:
        return True
    if where.within_function is None:
        return None
    mine, theirs = where.within_function
    line = point.guard.line if where.common == here else mine.line
    tree = case.sources.function(mine.file, mine.line)
    if tree is None:
        return None
    own, others = guards(tree, line), {g.place for g in guards(tree, theirs.line)}
    # In a later round, a jump before the line may have led past it; in the same one, only what is around it may.
    own = [g for g in own if g.place != point.guard.place]
    apart = [g for g in own if g.place not in others or _may_skip(g, line, theirs.line)]
    further = [g for f in way[where.common + 1 : here] for g in _before(case, f.file, f.line)]
    if where.common < here:
        further += [g for g in _before(case, point.file, point.guard.line) if g.place != point.guard.place]
    return not apart and not further


def _may_skip(guard: Guard, line: int, now: int) -> bool:
    """True for a jump before the line, of who is before the line now: it went round since, or has not come to it."""
    return guard.kind == "return" and now < line


def _before(case: Case, file: str, line: int) -> list[Guard]:
    tree = case.sources.function(file, line)
    return guards(tree, line) if tree is not None else []


def _is_tested_in(point: BranchPoint, file: str, function: str, line: int) -> bool:
    return (file, plain(function), line) == (point.file, point.function, point.line)


def _has_been_there(case: Case, rank: int, point: BranchPoint) -> bool:
    """True if the rank has run the test, or issued a call from its function."""
    if case.table.ran(rank, point.file, point.guard.line):
        return True
    program = case.programs.get(rank)
    stacks = program.recording.issued_from if program is not None else (case.activities[rank].stack,)
    return any((f.file, plain(f.function)) == (point.file, point.function) for stack in stacks for f in stack)
