"""HD103: an exception that a rank alone raised, where neither its handler nor another condition is seen."""

from __future__ import annotations

from hangdoc.diagnosis.calls.history import END
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.left_traces import DOUBT, told
from hangdoc.diagnosis.causes.phrases import call_at, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.condition.elsewhere.left_behind import LeftBehind
from hangdoc.diagnosis.condition.elsewhere.ran_alone import ran_alone
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Diverged
from hangdoc.diagnosis.source.queries import raises
from hangdoc.model.message import Condition, Place, Ranks, joined, sentence


@cause("HD103", explains=Diverged, order=185)
def raised_by_the_culprits(case: Case, blame: Blame[Diverged]) -> Finding | None:
    """HD103: the culprits alone have run the one `raise` under a condition, and live on: something has caught it, a
    library perhaps, which then makes fewer calls or other ones."""
    gap, point = blame.found.gap, blame.found.branch_point
    if gap is None or gap.token.op == END or gap.mine is None or (point is not None and not point.quiet):
        return None
    left = _raised(case, blame)
    if left is None:
        return None
    return Finding(
        "HD103",
        sentence(
            [
                [Ranks(blame.culprits), " raised an exception at ", Place(left.file, left.line)],
                [" that was caught, and went on to ", call_at(gap.mine)],
            ],
            where_they_wait(case, others_of(case, blame)),
        ),
        joined(told(left, (blame.culprits, others_of(case, blame))), "where it was caught was not seen"),
        "let the exception end the process, or make all ranks agree on it (all_reduce a flag) before any goes on",
        DOUBT,
        decided_at=Condition(left.guard.condition, left.file, left.guard.line),
    )


def _raised(case: Case, blame: Blame[Diverged]) -> LeftBehind | None:
    """The one condition with a `raise` under it that the culprits alone have run."""
    sides = blame.culprits, others_of(case, blame)
    found = []
    for left in ran_alone(case, sides) if all(sides) else []:
        tree = case.sources.function(left.file, left.guard.line)
        if left.side == 0 and tree is not None and raises(tree, left.guard.line):
            found.append(left)
    return found[0] if len(found) == 1 else None
