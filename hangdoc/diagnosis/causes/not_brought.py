"""HD505, HD507 and HD508: a rank waits for a connection, an item or a lock that another one was to bring or let go."""

from __future__ import annotations

from hangdoc.diagnosis.blame.not_brought import NotBrought, What
from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.causes.phrases import at, line_of, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.model.message import Does, Joined, Ranks, joined, sentence

_MOST_PLACES = 2
"""Lines that a sentence names; chosen by hand."""


_WORDS = {
    What.CONNECTION: ("HD507", "waits for a further connection", "wait for a further connection", "not connected"),
    What.ITEM: ("HD505", "waits for a further item of its queue", "wait for a further item", "not put one there"),
    What.LOCK: ("HD508", "tries to take a lock", "try to take a lock", "not let it go"),
}
"""The code, what one and what several ranks do, and what the culprit has not done."""
_FIXES = {
    What.LOCK: "let the lock go whatever happens (`try` … `finally`, or a context manager), and give its owner a "
    "deadline after which another rank may take it"
}
_FIX = (
    "let every rank bring something in every round, an empty one as well, or say how many to expect; give the wait a "
    "timeout"
)


@cause("HD505", "HD507", "HD508", explains=NotBrought, order=368)
def left_out_by_one(case: Case, blame: Blame[NotBrought]) -> Finding:
    """HD507 for a connection, HD505 for an item of a queue, HD508 for a lock that ranks poll for."""
    found, culprits = blame.found, blame.culprits
    code, waits, wait, not_done = _WORDS[found.what]
    where = case.activities[found.waiting[0]].where
    rest = tuple(r for r in sorted(case.activities) if r not in found.waiting)
    return Finding(
        code,
        sentence(
            [Does(found.waiting, waits, wait), at(where), "; ", Does(culprits, "has", "have"), f" {not_done}"],
            where_they_wait(case, rest),
        ),
        joined(
            [
                "it is let go at " if found.what is What.LOCK else "the other ranks do so at ",
                Joined([line_of(each) for each in found.places[:_MOST_PLACES]], " or "),
            ],
            [Ranks(culprits), " alone went past that line, by ", found.left_by],
        ),
        _FIXES.get(found.what, _FIX),
        decided_at=found.left_by,
    )
