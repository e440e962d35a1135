"""What has run on the ranks, asked of each candidate: could it have parted the sides?

Of the candidate `if not rows:` with `return None` under it, past which one side went on to its call:

- the other side has not run the test: it is none (``REFUTED``), what parted the sides came before it;
- the other side has not run the arm that leads elsewhere: none either;
- the other side has run that arm, and the first one never has: it is the one (``SEEN``);
- the other side has run the test, and nothing of what comes after it: it fits, unless the first side went the other way
  as well in some rounds (``FITS``).

What both sides have run, in some round, says nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from hangdoc.diagnosis.condition.branch_point import BranchPoint, branch_point
from hangdoc.diagnosis.condition.scored import scored
from hangdoc.diagnosis.condition.scores import PLAIN
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.execution.parting import Seen
from hangdoc.diagnosis.execution.table import Table
from hangdoc.diagnosis.source.guards import Guard
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import FUNCTIONS, LOOPS, last_name, walk
from hangdoc.diagnosis.source.values import SideRanks

SEEN, FITS, UNKNOWN, REFUTED = 0, 1, 2, 3


@dataclass(frozen=True, slots=True)
class _Arms:
    """The lines that tell how a guard was decided: ``test`` run where it was asked, ``under`` where it was as the
    guarded side has it, ``past`` where it was not; () where no line tells."""

    test: tuple[int, ...]
    under: tuple[int, ...]
    past: tuple[int, ...]
    may_lead_further: bool = False
    """An exception may have led past all of these."""


def by_what_ran(sources: Sources, table: Table, points: list[BranchPoint], ranks: SideRanks) -> list[BranchPoint]:
    """``points`` without those that the counters refute, and with those first that they confirm.

    A loop that one side has left stays in front of what leads out of it, and of one condition around both sides the
    arm that was first.
    """
    if not table or not points:
        return points
    judged = [(_judged(sources, table, point, ranks), point) for point in points]
    judged = [(how, replace(point, seen=True) if how == SEEN else point) for how, point in judged]
    possible = [point for how, point in judged if how != REFUTED]
    told = {wanted: {_place(point) for how, point in judged if how == wanted} for wanted in (SEEN, FITS)}
    told[FITS] -= told[SEEN]
    confirmed = [point for wanted in (SEEN, FITS) for point in possible if _place(point) in told[wanted]]
    loop = possible[0] if possible and possible[0].uneven else None
    if loop is not None:
        confirmed = [p for p in confirmed if p.file != loop.file or not loop.guard.holds(p.guard.line)]
    return [*confirmed, *(point for point in possible if point not in confirmed)]


def as_recorded(case: Case, found: Seen | None, points: list[BranchPoint], ranks: SideRanks) -> list[BranchPoint]:
    """``points``, behind the one at which the sides were seen to part, where there is such a one."""
    if found is None:
        return points
    guard, frame = found.guard, found.frame
    known = [p for p in points if _place(p) == (frame.file, guard.place) and p.guarded == found.side]
    of_values = scored(case.sources, case.values, guard, frame, found.side, ranks, outside=True)
    first = (known or [of_values or branch_point(guard, frame, found.side, PLAIN)])[0]
    first = replace(first, level=found.level, uneven=guard.kind == "loop", seen=True, recorded=True, doubt="")
    return [first, *(p for p in points if _place(p) != _place(first))]


def _place(point: BranchPoint) -> tuple[str, tuple[int, str]]:
    return point.file, point.guard.place


def _judged(sources: Sources, table: Table, point: BranchPoint, ranks: SideRanks) -> int:
    if point.of_library or point.made or point.registered or point.quiet or point.own_arm:
        return UNKNOWN
    under, others = ranks[point.guarded], ranks[1 - point.guarded]
    how = decided(sources, table, point.file, point.guard, under=under, others=others)
    # Where both arms call the same, the other side may have been in its arm in a round that both went through.
    return FITS if how == SEEN and (point.both_arms or _calls_alike(sources, point)) else how


def _calls_alike(sources: Sources, point: BranchPoint) -> bool:
    """True if the condition's other arm has a call of the same name as the line that the guarded side is at."""
    tree = sources.function(point.file, point.guard.line)
    nodes = list(walk(tree)) if tree is not None else []
    calls = [node for node in nodes if isinstance(node, ast.Call) and last_name(node.func)]
    here = {last_name(call.func) for call in calls if call.lineno <= point.line <= (call.end_lineno or call.lineno)}
    around = [n for n in nodes if isinstance(n, ast.If | ast.ExceptHandler) and n.lineno == point.guard.line]
    arms = [arm for n in around for arm in (n.body, getattr(n, "orelse", []))]
    apart = [arm for arm in arms if arm and not arm[0].lineno <= point.line <= (arm[-1].end_lineno or 0)]
    there = {last_name(n.func) for arm in apart for each in arm for n in walk(each) if isinstance(n, ast.Call)}
    return not here.isdisjoint(there)


def decided(
    sources: Sources, table: Table, file: str, guard: Guard, *, under: tuple[int, ...], others: tuple[int, ...]
) -> int:
    """What the counters say of a guard that the ranks ``under`` have passed as it was taken, and the others have not:
    ``SEEN``, ``FITS``, ``REFUTED`` or ``UNKNOWN``."""
    under, others = table.known(under), table.known(others)
    arms = arms_of(sources, file, guard)
    if arms is None or not others:
        return UNKNOWN
    if _none(table, others, file, arms.test, sure=True):
        return REFUTED
    if _none(table, others, file, arms.past, sure=True) and not arms.may_lead_further:
        return REFUTED
    if under and _all(table, others, file, arms.past) and _none(table, under, file, arms.past):
        return SEEN
    if _all(table, others, file, arms.test) and _none(table, others, file, arms.under):
        both_ways = any(table.lately(rank, file, line) for rank in under for line in arms.past)
        return UNKNOWN if both_ways else FITS
    return UNKNOWN


def _all(table: Table, ranks: Iterable[int], file: str, lines: tuple[int, ...]) -> bool:
    """True if each of the ranks has run one of the lines."""
    return bool(lines) and all(any(table.lately(rank, file, line) for line in lines) for rank in ranks)


def _none(table: Table, ranks: Iterable[int], file: str, lines: tuple[int, ...], *, sure: bool = False) -> bool:
    """True if none of the ranks has run the lines: one of these is known not to have run, and none to have."""
    ask = table.ran if sure else table.lately
    known = [{ask(rank, file, line) for line in lines} for rank in ranks]
    return bool(known) and all(False in each and True not in each for each in known)


def arms_of(sources: Sources, file: str, guard: Guard) -> _Arms | None:
    """The lines that tell how the guard was decided; None where none do: of a test within a line."""
    tree = sources.function(file, guard.line)
    nodes = walk(tree) if tree is not None else ()
    for node in nodes:
        if isinstance(node, ast.If) and node.lineno == guard.line and guard.kind in ("if", "return"):
            body, other = _first_lines(node.body), _first_lines(node.orelse)
            if guard.kind == "return":
                after = _lines_after(tree, node)
                return _Arms(_of_test(node.test), after, other if guard.taken else body)
            return _Arms(_of_test(node.test), body if guard.taken else other, other if guard.taken else body)
        if isinstance(node, LOOPS) and node.lineno == guard.line and guard.kind == "loop":
            test = node.test if isinstance(node, ast.While) else node.iter
            return _Arms(_of_test(test), _first_lines(node.body), ())
        if guard.kind == "try" and guard.is_tried and isinstance(node, ast.Try) and node.lineno == guard.line:
            handled = tuple(line for handler in node.handlers for line in _first_lines(handler.body))
            return _Arms(_first_lines(node.body[:1]), (), handled, may_lead_further=True)
        if guard.kind == "try" and isinstance(node, ast.ExceptHandler) and node.lineno == guard.line:
            suite = _first_lines(node.body)
            return _Arms((), suite, ()) if guard.taken else _Arms((), (), suite)
    return None


def _of_test(test: ast.expr) -> tuple[int, ...]:
    return tuple(range(test.lineno, (test.end_lineno or test.lineno) + 1))


def _first_lines(block: list[ast.stmt]) -> tuple[int, ...]:
    """The lines of the block's statements up to the first that may not run to its end, and those of its beginning."""
    found: list[int] = []
    for statement in block:
        found += _own_lines(statement)
        if not isinstance(statement, ast.Expr | ast.Assign | ast.AugAssign | ast.AnnAssign):
            break
    return tuple(found)


def _own_lines(statement: ast.stmt) -> Iterator[int]:
    """The statement's own lines; of a compound one, those of what it tests or goes over."""
    if isinstance(statement, FUNCTIONS):
        return
    if isinstance(statement, ast.Try):
        yield from _first_lines(statement.body[:1])
        return
    head = getattr(statement, "test", None) or getattr(statement, "iter", None)
    if isinstance(statement, ast.If | ast.While | ast.For | ast.AsyncFor) and isinstance(head, ast.expr):
        yield from _of_test(head)
    elif isinstance(statement, ast.With | ast.AsyncWith):
        yield from (line for item in statement.items for line in _of_test(item.context_expr))
    elif not isinstance(statement, ast.Match):
        yield from range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)


def _lines_after(tree: ast.AST | None, node: ast.If) -> tuple[int, ...]:
    """The lines of the next statement, which run where an `if` that leaves its block was not taken."""
    for around in walk(tree) if tree is not None else ():
        for part in ("body", "orelse", "finalbody"):
            block = getattr(around, part, None)
            if not isinstance(block, list) or node not in block:
                continue
            following = _first_lines(block[block.index(node) + 1 :])
            is_elif = isinstance(around, ast.If) and part == "orelse" and len(block) == 1
            return _lines_after(tree, around) if is_elif and isinstance(around, ast.If) else following
    return ()
