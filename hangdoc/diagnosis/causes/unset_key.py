"""HD305: a rank left out setting the store key that bears its number, or that its way leads to."""

from __future__ import annotations

from hangdoc.diagnosis.blame.store_barrier import NotCounted
from hangdoc.diagnosis.blame.unset_key import KeyOfTheOtherArm, UnsetKey
from hangdoc.diagnosis.causes.call_conditions import conditions_of_call, loops_of_call
from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.causes.left_traces import left_by_culprits
from hangdoc.diagnosis.causes.phrases import at, line_of, place, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.diagnosis.source.handlers import swallowing
from hangdoc.model.message import Condition, Does, Joined, Message, Ranks, Verb, joined, sentence

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


@cause("HD305", explains=KeyOfTheOtherArm, order=378)
def key_of_the_other_arm(case: Case, blame: Blame[KeyOfTheOtherArm]) -> Finding:
    """HD305: the others wait for what the culprits set on their way, which they are past."""
    found, culprits = blame.found, blame.culprits
    awaited = f"{found.key} in" if found.key else "a key in"
    skipping = conditions_of_call(case.sources, found.set_at, case.activities[culprits[0]].stack)
    caught = [Condition(e.condition, found.set_at.file, e.line) for e in swallowing(case.sources, found.set_at)]
    past = [each for each in (*skipping, *caught) if each != found.test]
    return Finding(
        "HD305",
        sentence(
            [
                [Does(culprits, "has", "have"), " not set ", f"{awaited} the store, for which "],
                [Does(found.waiting, "waits", "wait"), at(case.activities[found.waiting[0]].where)],
            ],
            where_they_wait(case, culprits),
        ),
        joined(
            [
                [found.test, " decides who sets it, at ", line_of(found.set_at), ", and who waits for it; "],
                [Ranks(culprits), " alone ", Verb(culprits, "is", "are"), " past it without waiting"],
            ],
            [Joined(past, " or "), " may have led past the line that sets it"] if past else "",
        ),
        "set the key on every way out of that arm, an error as well, or tell those who wait that there is none; give "
        "the wait a timeout",
        decided_at=found.test,
    )


@cause("HD305", explains=NotCounted, order=380)
def never_counted(case: Case, blame: Blame[NotCounted]) -> Finding:
    """HD305: the others wait for the key that the last of all ranks sets, and the culprits never came there."""
    found, culprits = blame.found, blame.culprits
    function = found.counted_at.function
    deciding = conditions_of_call(case.sources, found.counted_at, case.activities[culprits[0]].stack)
    return Finding(
        "HD305",
        sentence(
            [
                [Does(culprits, "has", "have"), " not come to ", place(found.counted_at)],
                [", where ", Does(found.waiting, "waits", "wait"), " for the last of all ranks to set a key"],
            ],
            where_they_wait(case, culprits),
        ),
        joined(
            "each rank counts itself there, and the key is set when all have",
            [Joined(deciding, " and "), f" decides whether {function}() is called"] if deciding else "",
            "" if deciding else left_by_culprits(case, blame),
        ),
        f"let every rank call {function}() equally often, whatever it has to do, and give the wait a timeout",
        decided_at=deciding[-1] if deciding else None,
    )
