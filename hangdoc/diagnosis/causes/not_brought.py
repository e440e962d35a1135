"""HD505 and HD507: a rank waits for a connection, or an item, that one of the others was to bring and left out."""

from __future__ import annotations

from hangdoc.diagnosis.blame.not_brought import NotBrought
from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.causes.phrases import at, line_of, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.model.message import Does, Joined, Ranks, joined, sentence

_MOST_PLACES = 2
"""Lines that a sentence names; chosen by hand."""


@cause("HD505", "HD507", explains=NotBrought, order=378)
def left_out_by_one(case: Case, blame: Blame[NotBrought]) -> Finding:
    """HD507 for a connection, HD505 for an item of a queue."""
    found, culprits = blame.found, blame.culprits
    what = "a further connection" if found.connects else "a further item of its queue"
    done = "connected" if found.connects else "put one there"
    return Finding(
        "HD507" if found.connects else "HD505",
        sentence(
            [
                [f"rank {found.waiting} waits for {what}", at(case.activities[found.waiting].where), "; "],
                [Does(culprits, "has", "have"), f" not {done}"],
            ],
            where_they_wait(case, tuple(r for r in sorted(case.activities) if r != found.waiting)),
        ),
        joined(
            ["the other ranks do so at ", Joined([line_of(each) for each in found.places[:_MOST_PLACES]], " or ")],
            [Ranks(culprits), " alone went past that line, by ", found.left_by],
        ),
        f"let every rank bring something in every round, an empty one as well, or tell rank {found.waiting} how many "
        "to expect; give its wait a timeout",
        decided_at=found.left_by,
    )
