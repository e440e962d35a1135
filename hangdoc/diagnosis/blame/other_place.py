"""All ranks poll what they share as processes, and a few of them at another place in it than the rest."""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.diagnosis.blame.shared_by_processes import POLLING
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.guards import loops_around
from hangdoc.diagnosis.source.shared_values import places_tested, shares_memory
from hangdoc.diagnosis.source.syntax import innermost_loop
from hangdoc.model.kinds import Confidence
from hangdoc.model.message import Condition
from hangdoc.model.process import Frame
from hangdoc.model.wording import ranks_text


@dataclass(frozen=True, slots=True)
class OtherPlace(Explanation):
    """``waiting`` poll at place ``there`` for what all of ``readers`` are to do with it, by ``test``; the culprits are
    at place ``here`` of ``name``, the other readers where the ranks that wait are."""

    waiting: tuple[int, ...]
    readers: tuple[int, ...]
    name: str
    there: str
    here: str
    test: Condition


def other_place(case: Case) -> Blame[OtherPlace] | None:
    """The blame of the readers of shared memory that poll another place in it than the one that others wait for, where
    the other readers have got to.

    Example: rank 0 polls in `while not self.flags[slot].all():`, with slot = 1, and ranks 1 to 3 in `while
    self.flags[slot, reader]:`, ranks 1 and 2 with slot = 1 and rank 3 with slot = 2 → rank 3, which has gone on past
    slot 1 without doing its part.
    """
    still = all(a.kind in POLLING and not a.moving for a in case.activities.values())
    if not still or case.hidden or not shares_memory(case.sources):
        return None
    lines: dict[tuple[str, int], list[int]] = {}
    for rank, activity in sorted(case.activities.items()):
        if activity.where is None:
            return None
        lines.setdefault((activity.where.file, activity.where.line), []).append(rank)
    if len(lines) != 2:
        return None
    waiting, readers = sorted(lines.values(), key=len)
    if len(readers) < 2:
        return None
    (mine, test), (theirs, _) = _tested(case, waiting[0]), _tested(case, readers[0])
    for _, name in sorted(mine & theirs):
        wanted = {_value(case, rank, name) for rank in waiting}
        at = {rank: _value(case, rank, name) for rank in readers}
        odd = tuple(rank for rank in readers if at[rank] not in wanted)
        apart = {at[rank] for rank in odd}
        if len(wanted) != 1 or len(apart) != 1 or "" in wanted | apart or test is None or 2 * len(odd) > len(readers):
            continue
        (there,), (here,) = wanted, apart
        found = OtherPlace(tuple(waiting), tuple(readers), name, there, here, test)
        sure = f"{ranks_text(odd)} alone of those that poll there {'is' if len(odd) == 1 else 'are'} at another {name}"
        return Blame(found, odd, confidence=Confidence.LIKELY, sure=sure)
    return None


def _tested(case: Case, rank: int) -> tuple[set[tuple[str, str]], Condition | None]:
    """(what, name of the place) of what the loop around the rank's line tests, and its condition."""
    frame = user_stack(case.activities[rank].stack)[0]
    tree = case.sources.function(frame.file, frame.line)
    loop = innermost_loop(tree, frame.line)
    if loop is None or tree is None:
        return set(), None
    around = loops_around(tree, frame.line)
    test = Condition(around[-1].condition, frame.file, around[-1].line) if around else None
    return places_tested(loop), test


def _value(case: Case, rank: int, name: str) -> str:
    """The number that the name stands for where the rank polls; '' where that was not seen, or is none."""
    frame: Frame = user_stack(case.activities[rank].stack)[0]
    return next((each.value for each in frame.locals if each.name == name and each.value.isdigit()), "")
