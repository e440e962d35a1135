"""HD101, HD102, HD103 and HD109 of a call that all ranks wait in, and some left out in an earlier round of a loop, or
came to by a way of their own."""

from __future__ import annotations

from hangdoc.diagnosis.blame.odd_past import OddPast
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.left_traces import told
from hangdoc.diagnosis.causes.phrases import at, cited
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.diagnosis.source.queries import raises_under
from hangdoc.model.message import (
    Joined,
    Ranks,
    joined,
    sentence,
)


@cause("HD101", "HD103", explains=OddPast, order=305)
def came_another_way(case: Case, blame: Blame[OddPast]) -> Finding:
    """HD101: all wait in one call, and one rank alone has left a function, or a round, by a condition before it. HD103:
    it raised there, or handled what was raised."""
    found, culprits, others = blame.found, blame.culprits, others_of(case, blame)
    first = found.left[0]
    tree = case.sources.function(first.file, first.line)
    raised = first.guard.kind == "try" or (tree is not None and raises_under(tree, first.guard.line))
    return Finding(
        "HD103" if raised else "HD101",
        sentence(
            [Ranks(culprits), f" came to the {case.activities[culprits[0]].text}", at(found.at), " another way"],
            "all ranks wait in that call now, and it does not complete",
        ),
        joined(
            Joined([told(each, (culprits, others)) for each in found.left]),
            ["who leaves out a call there, or makes one more, is a call apart from the others at the next"],
        ),
        "let all ranks agree there (all_reduce a flag), so that each makes the same calls",
        "which call was left out was not seen",
        cited(first.guard, first.file),
        cited(found.left[1].guard, found.left[1].file) if len(found.left) > 1 else None,
    )
