"""HD305: a rank has deleted a store key that others were still to get."""

from __future__ import annotations

from hangdoc.diagnosis.blame.deleted_key import DeletedKey
from hangdoc.diagnosis.causes.call_conditions import conditions_of_call
from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.causes.phrases import at, place, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.model.message import Does, Joined, Ranks, joined, sentence


@cause("HD305", explains=DeletedKey, order=383)
def deleted_key(case: Case, blame: Blame[DeletedKey]) -> Finding:
    """HD305: the culprits have got the key and deleted it before the others came to get it."""
    found, culprits = blame.found, blame.culprits
    deciding = conditions_of_call(case.sources, found.deleted_at, case.activities[found.waiting[0]].stack)
    deciding = deciding or conditions_of_call(case.sources, found.deleted_at, ())
    return Finding(
        "HD305",
        sentence(
            [
                [Does(culprits, "has", "have"), " deleted a store key at ", place(found.deleted_at)],
                [" that ", Does(found.waiting, "waits", "wait"), " for", at(case.activities[found.waiting[0]].where)],
            ],
            where_they_wait(case, culprits),
        ),
        joined(
            ["the key was set, for others have got it there; ", Ranks(culprits), " alone ran the line that deletes it"],
            [Joined(deciding, " and "), " decides whether that line runs"] if deciding else "",
        ),
        "delete a key only after all ranks have read it, as after a barrier, or let nobody delete it; give the wait a "
        "timeout",
        decided_at=deciding[-1] if deciding else None,
    )
