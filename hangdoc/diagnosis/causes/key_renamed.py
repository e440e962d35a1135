"""HD305: a rank has set its key under another name than the others wait for."""

from __future__ import annotations

from hangdoc.diagnosis.blame.key_renamed import KeyRenamed
from hangdoc.diagnosis.blame.unset_key import awaited_keys
from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.causes.phrases import at, line_of, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.model.message import Does, Joined, Ranks, Verb, joined, sentence

_MOST_KEYS = 3
"""Keys that a sentence names; chosen by hand."""


@cause("HD305", explains=KeyRenamed, order=379)
def key_of_another_name(case: Case, blame: Blame[KeyRenamed]) -> Finding:
    """HD305: all ranks have set their keys, and a few of them under another name."""
    found, culprits = blame.found, blame.culprits
    awaited = sorted({key for rank in found.waiting for key in awaited_keys(case, rank)})
    keys = Joined(list(awaited)[:_MOST_KEYS] or ["a key"], " and ")
    way = ("gives", "give") if found.taken else ("does not give", "do not give")
    return Finding(
        "HD305",
        sentence(
            [
                [Does(culprits, "has", "have"), " set the key", at(found.set_at), " under another name than that for "],
                ["which ", Does(found.waiting, "waits", "wait"), ": ", keys],
                at(case.activities[found.waiting[0]].where),
            ],
            where_they_wait(case, culprits),
        ),
        joined(
            ["every rank has set its own there, and ", found.test, " decides whether its name is changed before"],
            [Ranks(culprits), " alone ", Verb(culprits, *way), " it another one"],
        ),
        [
            ["make the name in one function, for who sets the key (", line_of(found.set_at), ") as for who waits for "],
            "it, and give the wait a timeout",
        ],
        decided_at=found.test,
    )
