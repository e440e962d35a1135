"""HD305: a condition led the only rank that sets such keys past the line that sets them."""

from __future__ import annotations

from hangdoc.diagnosis.blame.key_passed_by import KeyPassedBy
from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.causes.phrases import at, line_of, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.model.message import Does, Joined, Ranks, Verb, joined, sentence

_MOST_KEYS = 3
"""Keys that a sentence names; chosen by hand."""


@cause("HD305", explains=KeyPassedBy, order=381)
def key_passed_by(case: Case, blame: Blame[KeyPassedBy]) -> Finding:
    """HD305: the others wait for keys that the culprits left out."""
    found, culprits = blame.found, blame.culprits
    journals = [case.ranks[rank].journal for rank in found.waiting]
    awaited = dict.fromkeys(k for j in journals if j is not None for wait in j.store_waits for k in wait.keys)
    keys = Joined(list(awaited)[:_MOST_KEYS] or ["a key"], " and ")
    return Finding(
        "HD305",
        sentence(
            [
                [Does(culprits, "has", "have"), " not set ", keys, " in the store, for which "],
                [Does(found.waiting, "waits", "wait"), at(case.activities[found.waiting[0]].where)],
            ],
            where_they_wait(case, culprits),
        ),
        joined(
            [
                ["such keys are set at ", line_of(found.set_at), ", to which ", Ranks(culprits), " alone "],
                Verb(culprits, "comes", "come"),
            ],
            [found.test, " leads past that line"],
        ),
        "set a key on every way, one that says that there is nothing as well, or tell those who wait; give the wait a "
        "timeout",
        decided_at=found.test,
    )
