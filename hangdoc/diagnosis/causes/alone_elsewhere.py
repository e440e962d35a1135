"""HD504, HD505, HD507 and HD508: most ranks wait at one line, and the culprits alone are elsewhere."""

from __future__ import annotations

from hangdoc.diagnosis.blame.alone_elsewhere import AloneElsewhere
from hangdoc.diagnosis.calls.alignment import repairs
from hangdoc.diagnosis.calls.stack_calls import from_stacks
from hangdoc.diagnosis.causes.deciding import passed_on_its_way, what_decided
from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.causes.left_traces import left_by_culprits
from hangdoc.diagnosis.causes.phrases import at, line_of, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.condition.choice import branch_points_of
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Diverged
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.message import Does, Message, Ranks, Verb, conditions_in, joined, sentence

CODES = {
    ActivityKind.FILE_LOCK: "HD504",
    ActivityKind.LOCK: "HD505",
    ActivityKind.PIPE: "HD507",
    ActivityKind.IO: "HD507",
    ActivityKind.EVENT_LOOP: "HD507",
    ActivityKind.SLEEPING: "HD508",
}
"""What a wait is called that nothing seen ends."""


@cause("HD504", "HD505", "HD507", "HD508", explains=AloneElsewhere, order=379)
def alone_elsewhere(case: Case, blame: Blame[AloneElsewhere]) -> Finding:
    """What most ranks wait for does not come, and the culprits alone are not where all others are."""
    waiting, culprits = blame.found.waiting, blame.culprits
    first = case.activities[waiting[0]]
    decided = left_by_culprits(case, blame) or passed_on_its_way(case, blame) or _between_the_places(case, blame)
    strange = ", or the service there, which is no process of the job, does not answer" if blame.found.stranger else ""
    gives = blame.found.gives
    missed: Message = [" where ", Does(waiting, "waits", "wait")] if gives else " not where the others are"
    what = "left out a part of what is waited for there, or came past it another way"
    what = "let others go on that have waited there, and not these" if gives else what
    everybody = len(waiting) + len(culprits) == len(case.seen)
    return Finding(
        CODES[first.kind],
        sentence(
            [Ranks(culprits), " alone ", "never waits" if gives else Verb(culprits, "is", "are"), missed],
            [Does(waiting, "is", "are"), f" {first.text}", at(first.where)],
            where_they_wait(case, culprits),
        ),
        joined(
            [
                ["nothing that was seen ends the wait at ", line_of(first.where), ", "],
                "and all other ranks are in it" if everybody else ["and ", Ranks(waiting), " are in it"],
            ],
            [Ranks(culprits), " let others go on that have waited there, and not these"]
            if gives
            else [
                Ranks(culprits),
                " left out a part of what is waited for there, or came past it another way",
                strange,
            ],
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


def _between_the_places(case: Case, blame: Blame[AloneElsewhere]) -> Message:
    """The condition that led to the one place and not to the other, as for two calls that do not match; '' where none
    is seen.

    Example: all but rank 2 are at the `ready.acquire()` under `if batch.full:`, rank 2 in the barrier after it → that
    `if`.
    """
    places = {rank: case.activities[rank] for rank in (*blame.found.waiting, *blame.culprits)}
    for history in from_stacks(places, tuple(activity.kind for activity in places.values())):
        for alignment in repairs(history):
            points = branch_points_of(case, alignment) if alignment.culprits == blame.culprits else []
            if points:
                return what_decided(case, Blame(Diverged(alignment, tuple(points)), blame.culprits))
    return ""
