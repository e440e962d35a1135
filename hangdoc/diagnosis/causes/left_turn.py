"""HD508: ranks poll for what each does in its turn, and one went on without doing it."""

from __future__ import annotations

from hangdoc.diagnosis.blame.left_turn import LeftTurn
from hangdoc.diagnosis.causes.call_conditions import conditions_of_call
from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.causes.phrases import at, place, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.model.message import Does, Joined, Ranks, joined, sentence


@cause("HD508", explains=LeftTurn, order=372)
def turn_left_out(case: Case, blame: Blame[LeftTurn]) -> Finding:
    """HD508: the culprits have never run the line for which the others poll."""
    found, culprits = blame.found, blame.culprits
    deciding = conditions_of_call(case.sources, found.ends_at, case.activities[culprits[0]].stack)
    return Finding(
        "HD508",
        sentence(
            [
                [Does(culprits, "has", "have"), " not come to ", place(found.ends_at), ", for which "],
                [Does(found.waiting, "polls", "poll"), at(case.activities[found.waiting[0]].where)],
            ],
            where_they_wait(case, culprits),
        ),
        joined(
            [Does(found.done, "has", "have"), " done it, ", Ranks(culprits), " never"],
            [Joined(deciding, " and "), " decides whether a rank comes there"] if deciding else "",
        ),
        "let every rank do its part on every way out, also where it has nothing to do, and give the wait a timeout",
        decided_at=deciding[-1] if deciding else None,
    )
