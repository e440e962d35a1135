"""Of ranks that all wait at one line, the one that waits there for something else: what names it has another value.

Example: all ranks poll in `while self.store.add(key, 0) < self.size:`, with `key = f"meet/{self.generation}"` above it,
and self.generation is 3 on rank 1 and 1 on all others → rank 1, which is out of step.
"""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.diagnosis.blame.how_sure import at_one_line
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.needs.identity import Apart, named_apart
from hangdoc.diagnosis.needs.needs import Needs
from hangdoc.model.kinds import Confidence
from hangdoc.model.process import Frame


@dataclass(frozen=True, slots=True)
class OutOfStep(Explanation):
    """All ranks wait ``at`` a line for what ``apart`` names, of which the culprit alone has another value."""

    at: Frame
    apart: Apart


def odd_by_value(case: Case, ranks: tuple[int, ...] = ()) -> Blame[OutOfStep] | None:
    """The blame of that rank; of two, either. None where the ranks are at several lines, or the values do not tell.
    ``ranks``: those that wait, all by default."""
    everybody = ranks or tuple(sorted(case.activities))
    if case.hidden or len(everybody) < 2 or not at_one_line(case, everybody):
        return None
    where = next(iter(user_stack(case.activities[everybody[0]].stack)), None)
    if where is None:
        return None
    needs = Needs(case)
    seen = needs.seen(everybody[0])
    lines = seen.lines if seen is not None else ((where.file, where.line),)
    for each in named_apart(case, needs.program, lines, where, everybody):
        few, *rest = each.classes
        if len(rest) != 1 or len(few) != 1:
            continue
        found = OutOfStep(where, each)
        sure = f"rank {few[0]} alone has another `{each.name}` than the others, by which they wait"
        if len(everybody) > 2:
            return Blame(found, few, confidence=Confidence.LIKELY, sure=sure)
        return Blame(found, few, (rest[0],), sure="the two differ in what they wait for")
    return None
