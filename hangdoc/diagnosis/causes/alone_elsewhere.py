"""HD504, HD505, HD507 and HD508: most ranks wait at one line, and the culprits alone are elsewhere."""

from __future__ import annotations

from hangdoc.diagnosis.blame.alone_elsewhere import AloneElsewhere
from hangdoc.diagnosis.causes.deciding import passed_on_its_way
from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.causes.left_traces import left_by_culprits
from hangdoc.diagnosis.causes.phrases import at, line_of, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.message import Does, Ranks, Verb, conditions_in, joined, sentence

_CODES = {
    ActivityKind.FILE_LOCK: "HD504",
    ActivityKind.LOCK: "HD505",
    ActivityKind.PIPE: "HD507",
    ActivityKind.IO: "HD507",
    ActivityKind.EVENT_LOOP: "HD507",
    ActivityKind.SLEEPING: "HD508",
}


@cause("HD504", "HD505", "HD507", "HD508", explains=AloneElsewhere, order=379)
def alone_elsewhere(case: Case, blame: Blame[AloneElsewhere]) -> Finding:
    """What most ranks wait for does not come, and the culprits alone are not where all others are."""
    waiting, culprits = blame.found.waiting, blame.culprits
    first = case.activities[waiting[0]]
    decided = left_by_culprits(case, blame) or passed_on_its_way(case, blame)
    return Finding(
        _CODES[first.kind],
        sentence(
            [Ranks(culprits), " alone ", Verb(culprits, "is", "are"), " not where the others are"],
            [Does(waiting, "is", "are"), f" {first.text}", at(first.where)],
            where_they_wait(case, culprits),
        ),
        joined(
            [
                ["nothing that was seen ends the wait at ", line_of(first.where), ", "],
                "and all other ranks are in it",
            ],
            [Ranks(culprits), " left out a part of what is waited for there, or came past it another way"],
            decided,
        ),
        [
            "let every rank do its part of what is waited for at ",
            line_of(first.where),
            " before it goes on (in `finally`, if an exception or an early return leads past it), and give the wait a "
            "deadline",
        ],
        decided_at=next(conditions_in(decided), None),
    )
