"""Whether an exception that the user's own code caught, or that is still pending, can have led the culprits past the
others' call.

``by_handler`` looks for a `try` or `with` around the others' way to their call, which the culprits may have left by an
exception: they are past it, or in another round of a loop around it. ``in_exit`` sees the exception itself: the
culprits are in a context's `__exit__`, which was given one. Example:

    5  for step in range(n):
    6      try:
    7          loss = forward()    # side 0 waits in here, step = 8
    8          loss.backward()     # side 1 waits in here, step = 7
    9      except OutOfMemory:
   10          self.skipped += 1   # self.skipped = 1 on side 0, and 0 on side 1

Here, side 0 is in a later round, and what the handler counts differs: it skipped line 8 by that handler.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from itertools import pairwise

from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.condition.divergence_point import is_own
from hangdoc.diagnosis.condition.stack_comparison import callees_of, guards_of
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.landmarks import is_implicit, plain
from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.frames.stacks import Fork, fork, same_function, user_stack
from hangdoc.diagnosis.source.guards import Guard
from hangdoc.diagnosis.source.handlers import Swallowing, calls_of, draws_items, enters, swallowing, with_at
from hangdoc.diagnosis.source.queries import turns_quiet, works_before
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import enclosing_function, last_name, text_of
from hangdoc.diagnosis.source.values import SideRanks, sides_differ
from hangdoc.model.message import Condition
from hangdoc.model.process import Frame, Stack

_EXITS = ("__exit__", "__aexit__")
_TRACEBACK = "<traceback>"
_OBJECT = re.compile(r"<(\w+)>")
_EXCEPTION = re.compile(r"\w+(?:Error|Exception|Exit|Interrupt|Warning|Iteration)|Exception")


@dataclass(frozen=True, slots=True)
class Caught:
    """A statement that the culprits may have left by an exception, at the others' frame in it."""

    by: Swallowing
    frame: Frame
    marks: dict[str, dict[int, str]] = field(default_factory=dict)
    """Name → rank → value of what only the handler sets, where the sides differ: it ran on one of them."""
    rounds: dict[str, dict[int, str]] = field(default_factory=dict)
    """The count of the loop around it, where the culprits are in a later round, and nothing else leads there."""
    passed: bool = False
    """The culprits are further on in the function around it, and called what the others are in."""


def by_handler(case: Case, sides: tuple[Stack, Stack], ranks: SideRanks) -> list[Caught]:
    """What the culprits (side 0) may have left by an exception that was swallowed, the innermost first."""
    where = fork(*sides)
    found = []
    for level, frame in reversed(list(enumerate(where.theirs))):
        for each in swallowing(case.sources, frame):
            if _may_raise(case, sides[1], where.theirs[level:], each) and _may_have_left(
                case, sides, where, level, each
            ):
                rounds = _later_round(case, sides[1], where, level, each, ranks)
                passed = _has_passed(case, where, level, each)
                found.append(Caught(each, frame, _marks(case, frame, each, ranks), rounds, passed))
    return found


def _may_raise(case: Case, stack: Stack, way: Stack, tried: Swallowing) -> bool:
    """True if anything may raise in the statement before the others' call: a library runs it, or the functions on the
    way call something else first. ``way``: the others' frames from the statement's own on."""
    if is_implicit(stack):
        return True
    trees = [case.sources.function(frame.file, frame.line) for frame in way]
    begins = [tried.first, *(_begin(tree, f.line) for tree, f in zip(trees[1:], way[1:], strict=True))]
    return any(
        tree is None
        or works_before(tree, begin, frame.line)
        or enters(tree, frame.line)
        or draws_items(tree, begin, frame.line)
        for tree, begin, frame in zip(trees, begins, way, strict=True)
    )


def _begin(tree: ast.AST | None, line: int) -> int:
    """The first line of the function around the line; 0 where it is in none."""
    return getattr(enclosing_function(tree, line), "lineno", 0) if tree is not None else 0


def _has_passed(case: Case, where: Fork, level: int, tried: Swallowing) -> bool:
    """True if the culprits are past the statement in a function that both are in, and have been in it: what the others
    are in was called by its own name, which one function alone has."""
    mine, theirs = _compared(where)
    if mine is None or theirs is None or level < where.common or not same_function(mine, theirs):
        return False
    if mine.line <= theirs.line or (level == where.common and tried.tries(mine.line)):
        return False
    for caller, callee in pairwise(where.theirs[where.common :]):
        name = plain(callee.function).rpartition(".")[2]
        tree = case.sources.function(caller.file, caller.line)
        if tree is None or caller.line not in calls_of(tree, name) or case.sources.methods(name) > 1:
            return False
    return True


def _may_have_left(case: Case, sides: tuple[Stack, Stack], where: Fork, level: int, tried: Swallowing) -> bool:
    """True if the culprits are not in the same run of the statement's body as the others."""
    around = _loops_around(case, sides[1], where, min(level, where.common), tried)
    mine, theirs = _compared(where)
    if level < where.common:  # both are at one line of the body: it takes another round to have left it
        return around
    if mine is None or theirs is None:
        return True
    if level == where.common and tried.tries(mine.line):
        return around
    return around or mine.line > theirs.line or not same_function(mine, theirs)


def _compared(where: Fork) -> tuple[Frame | None, Frame | None]:
    """The first frames of both sides that differ."""
    at = where.common
    return (where.mine[at] if at < len(where.mine) else None, where.theirs[at] if at < len(where.theirs) else None)


def _loops_around(case: Case, stack: Stack, where: Fork, level: int, tried: Swallowing) -> bool:
    """True if a loop may have run the statement before, in one of the functions up to ``level`` that both are in."""
    callees = callees_of(stack)
    for at, frame in enumerate(where.theirs[: level + 1]):
        for guard in guards_of(case.sources, frame, callees):
            outside = guard.kind == "loop" and (at < level or guard.span[0] < tried.first)
            if outside and not _in_one_round(case, frame, guard):
                return True
    return False


def _in_one_round(case: Case, frame: Frame, loop: Guard) -> bool:
    """True if what counts the loop's rounds shows every rank in the same one."""
    seen = [case.values.of(frame.file, frame.function, name) for name in loop.rounds]
    return any(
        len(each) == len(case.seen) and len(set(each.values())) == 1 and next(iter(each.values())).isdigit()
        for each in seen
    )


def _marks(case: Case, frame: Frame, tried: Swallowing, ranks: SideRanks) -> dict[str, dict[int, str]]:
    """What the handler sets, by rank, where the culprits' values are their own and all the others' are the same."""
    found = {}
    for name in tried.marks:
        seen = case.values.of(frame.file, frame.function, name)
        theirs = {seen[r] for r in ranks[1] if r in seen}
        if sides_differ(seen, ranks) and len(theirs) == 1:
            found[name] = {rank: seen[rank] for side in ranks for rank in side if rank in seen}
    return found


def _later_round(
    case: Case, stack: Stack, where: Fork, level: int, tried: Swallowing, ranks: SideRanks
) -> dict[str, dict[int, str]]:
    """The count of the innermost loop around the statement, where the culprits are further on in it than the others,
    and no condition, loop or silent round further in can have led them past the others' call."""
    frame = where.theirs[level]
    callees = callees_of(stack)
    own = guards_of(case.sources, frame, callees)
    loop = next((g for g in reversed(own) if g.kind == "loop" and g.span[0] < tried.first), None)
    if loop is None or not loop.rounds:
        return {}
    within = [g for g in own if tried.tries(g.line)]
    within += [g for each in where.theirs[level + 1 :] for g in guards_of(case.sources, each, callees)]
    if any(map(_leads_past, within)):
        return {}
    trees = [case.sources.function(each.file, each.line) for each in where.theirs[level:]]
    if any(tree is None or turns_quiet(tree) for tree in trees):
        return {}
    return {name: seen for name in loop.rounds if (seen := _ahead(case, frame, name, ranks))}


def _leads_past(guard: Guard) -> bool:
    return guard.kind != "try"


def _ahead(case: Case, frame: Frame, name: str, ranks: SideRanks) -> dict[int, str]:
    """The name's values, where each of the culprits' is greater than each of the others'; else none."""
    seen = case.values.of(frame.file, frame.function, name)
    mine, theirs = ([seen.get(rank, "") for rank in side] for side in ranks)
    if not all(each.isdigit() for each in (*mine, *theirs)) or not mine or not theirs:
        return {}
    return seen if min(map(int, mine)) > max(map(int, theirs)) else {}


@dataclass(frozen=True, slots=True)
class Pending:
    """The culprits are in the `__exit__` of a `with` that an exception left. ``error``: its type, where it was seen."""

    frame: Frame
    """The line of the `with`, in the function that the others are still further in."""
    condition: str
    error: str
    raised: Frame | None
    """The user's line that raised it, where it was seen."""


def in_exit(case: Case, rank: int, sides: tuple[Stack, Stack]) -> Pending | None:
    """The pending exception for which the culprits' call is made: they are in a context's `__exit__`, which was given
    an exception, or a traceback, and the others are in the body of that `with`."""
    mine, now = sides[0], case.activities[rank].stack
    outer = max((i for i, frame in enumerate(mine) if _is_exit(frame)), default=None)
    if outer is None:
        return None
    entered = next((frame for frame in mine[outer:] if not is_library(frame) and frame is not mine[outer]), None)
    tree = case.sources.function(entered.file, entered.line) if entered is not None else None
    block = with_at(tree, entered.line) if tree is not None and entered is not None else None
    if block is None or entered is None:
        return None
    first, last = block.body[0].lineno, block.body[-1].end_lineno or block.body[-1].lineno
    if not any(same_function(frame, entered) and first <= frame.line <= last for frame in user_stack(sides[1])):
        return None
    condition = f"with {', '.join(text_of(item.context_expr) for item in block.items)}:"
    journal = case.ranks[rank].journal
    if journal is not None and journal.handled:
        if not any(same_function(frame, entered) and first <= frame.line <= last for frame in journal.handled_at):
            return None
        return Pending(entered, condition, journal.handled, next(iter(user_stack(journal.handled_at)), None))
    given = [each.value for frame in filter(_is_exit, now) for each in frame.locals]
    if not any(_TRACEBACK in value for value in given):
        return None
    shown = [name for value in given for name in _OBJECT.findall(value)]
    error = next((name for name in shown if _is_exception(case.sources, name)), "")
    return Pending(entered, condition, error, None)


def _is_exception(sources: Sources, name: str, steps: int = 4) -> bool:
    """True for the name of an exception, or of a class that the program derives from one."""
    bases = [last_name(base) for _, _, made in sources.user_classes(name) for base in made.bases] if steps else []
    return _EXCEPTION.fullmatch(name) is not None or any(_is_exception(sources, base, steps - 1) for base in bases)


def _is_exit(frame: Frame) -> bool:
    return plain(frame.function).rpartition(".")[2] in _EXITS


def only_handler(sources: Sources, gap: Gap, point: BranchPoint) -> Condition | None:
    """The handler that must have caught it: the only one around the others' call that goes on, of the `try:` at which
    the sides diverged; None where another may have.

    Example: `try: ⏎ all_reduce(x) ⏎ except OSError: ⏎ log()` → 'except OSError:'.
    """
    if gap.theirs is None or point.guarded != 1 or point.guard.condition != "try:":
        return None
    way = gap.token.stack if is_own(gap) else gap.theirs.stack  # of a call of their own, they had been in that one
    found = [(each, frame) for frame in user_stack(way) for each in swallowing(sources, frame)]
    if len(found) != 1 or found[0][0].first != point.guard.line or found[0][1].file != point.file:
        return None
    return Condition(found[0][0].condition, point.file, found[0][0].line)


def is_run_by_library(gap: Gap, point: BranchPoint) -> bool:
    """True if a library calls the function of the `try`: it may also have called it once less."""
    stack = gap.theirs.stack if gap.theirs is not None else ()
    at = [i for i, f in enumerate(stack) if f.file == point.file and plain(f.function) == point.function]
    return bool(at) and at[-1] + 1 < len(stack) and is_library(stack[at[-1] + 1])


def runs_a_library(gap: Gap, point: BranchPoint) -> bool:
    """True if a library below the `try` calls the user's code that made the call: it may have run less of it."""
    stack = gap.theirs.stack if gap.theirs is not None else ()
    end = next((i for i, f in enumerate(stack) if (f.file, plain(f.function)) == (point.file, point.function)), 0)
    first = next((i for i, f in enumerate(stack[:end]) if not is_library(f)), end)
    return any(is_library(f) and not f.file.endswith("/contextlib.py") for f in stack[first:end])
