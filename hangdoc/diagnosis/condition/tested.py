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

from dataclasses import replace

from hangdoc.diagnosis.condition.branch_point import BranchPoint, branch_point
from hangdoc.diagnosis.condition.scored import scored
from hangdoc.diagnosis.condition.scores import PLAIN
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.execution.parting import Seen
from hangdoc.diagnosis.execution.table import Choice, Table
from hangdoc.diagnosis.source.guards import Guard, guards, way_out_guards
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.values import SideRanks

SEEN, FITS, UNKNOWN, REFUTED = 0, 1, 2, 3


def as_recorded(case: Case, found: Seen | None, points: list[BranchPoint], ranks: SideRanks) -> list[BranchPoint]:
    """``points``, behind the one at which the sides were seen to part, where there is such a one: of a condition that
    leads out of a loop, the loop."""
    if found is None:
        return points
    loop, frame = _loop_left(case.sources, found), found.frame
    guard, left_at = (loop, found.guard) if loop is not None else (found.guard, None)
    known = [p for p in points if _place(p) == (frame.file, guard.place) and p.guarded == found.side]
    of_values = scored(case.sources, case.values, guard, frame, found.side, ranks, outside=True)
    first = (known or [of_values or branch_point(guard, frame, found.side, PLAIN)])[0]
    first = replace(first, level=found.level, uneven=guard.kind == "loop", seen=True, recorded=True, doubt="")
    first = replace(first, left_at=left_at)
    return [first, *(p for p in points if _place(p) != _place(first))]


def _loop_left(sources: Sources, found: Seen) -> Guard | None:
    """The innermost loop around the guarded side's line that the guard leads out of; None where there is none."""
    tree = sources.function(found.frame.file, found.frame.line)
    if tree is None or found.guard.kind != "return" or found.guard.goes_on:
        return None
    around = [each for each in guards(tree, found.frame.line, iterating=True) if each.kind == "loop"]
    ways = ((loop, way) for loop in reversed(around) for way in way_out_guards(tree, loop.line))
    return next((loop for loop, way in ways if (way.place, way.taken) == (found.guard.place, found.guard.taken)), None)


def _place(point: BranchPoint) -> tuple[str, tuple[int, str]]:
    return point.file, point.guard.place


def decided(table: Table, file: str, guard: Guard, *, under: tuple[int, ...], others: tuple[int, ...]) -> int:
    """What the table says of a guard that the ranks ``under`` have passed as it was taken, and the others have not:
    ``SEEN``, ``FITS``, ``REFUTED`` or ``UNKNOWN``."""
    choice = table.choice(file, guard)
    under, others = table.known(under), table.known(others)
    if choice is None or not others:
        return UNKNOWN
    asked = table.split(others, file, choice.predicates[0].line)
    if asked.never == others and choice.predicates[0].kind != "except":
        return REFUTED
    if not guard.is_tried and _all_had(table, choice, choice.past, others) == {False}:
        return REFUTED
    past = [_all_had(table, choice, choice.past, side, lately=True) for side in (under, others)]
    if past == [{False}, {True}]:
        return SEEN
    if asked.ran == others and _all_had(table, choice, choice.under, others, lately=True) == {False}:
        return UNKNOWN if True in past[0] else FITS
    return UNKNOWN


def _all_had(
    table: Table, choice: Choice, outcome: str, ranks: tuple[int, ...], *, lately: bool = False
) -> set[bool | None]:
    """Whether these had the outcome, of one of the choice's predicates."""
    found = [[table.had(each, outcome, rank, lately=lately)[0] for each in choice.predicates] for rank in ranks]
    return {True if True in each else None if None in each else False for each in found}
