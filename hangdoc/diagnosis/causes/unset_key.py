"""HD305: a rank left out setting the store key that bears its number, or that its way leads to."""

from __future__ import annotations

from hangdoc.diagnosis.blame.unset_key import UnsetKey
from hangdoc.diagnosis.causes.call_conditions import conditions_of_call, loops_of_call
from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.causes.phrases import at, place
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.model.message import Does, Joined, Message, joined, sentence

_MOST_KEYS = 4
"""Keys that a sentence names; chosen by hand."""


@cause("HD305", explains=UnsetKey, order=379)
def own_key_left_out(case: Case, blame: Blame[UnsetKey]) -> Finding:
    """HD305: each rank sets a key of its own and waits for those of all, and some have left theirs out."""
    found = blame.found
    first = case.activities[found.waiting[0]]
    stack = case.activities[blame.culprits[0]].stack
    deciding = conditions_of_call(case.sources, found.set_at, stack)
    deciding = deciding or loops_of_call(case.sources, found.set_at, stack)
    missing = Joined([f"{key}" for key in found.missing[:_MOST_KEYS]])
    there: Message = f"{len(found.there)} keys of the same name are there" if len(found.there) > 1 else "another is"
    return Finding(
        "HD305",
        sentence(
            [
                [Does(blame.culprits, "has", "have"), " not set ", missing, " in the store, for which "],
                [Does(found.waiting, "waits", "wait"), at(first.where)],
            ]
        ),
        joined(
            ["in the store ", missing, f" {'is' if len(found.missing) == 1 else 'are'} missing, and ", there],
            [
                "keys of this name are set at " if found.of_series else "every rank sets its own at ",
                place(found.set_at),
            ],
            [Joined(deciding, " and "), " decides whether ", "one is set" if found.of_series else "it does"]
            if deciding
            else "",
        ),
        "let whoever waits know which keys are set, or set one in every round, and give the wait a timeout"
        if found.of_series
        else "let every rank set its key in every round, whatever it has to say, and give the wait a timeout",
        decided_at=deciding[-1] if deciding else None,
    )
