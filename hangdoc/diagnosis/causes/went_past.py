"""HD305, HD504 and HD508: ranks wait for what another one was to do for them, and that one went on without."""

from __future__ import annotations

from hangdoc.diagnosis.blame.shared_by_processes import POLLING
from hangdoc.diagnosis.blame.went_past import WentPast
from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.causes.left_traces import told
from hangdoc.diagnosis.causes.phrases import at, line_of, place, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.state.activity import waits_for_a_key
from hangdoc.diagnosis.state.missing_threads import MissingThread
from hangdoc.model.message import Condition, Does, Joined, Message, Ranks, Values, joined, sentence

_MOST_PLACES = 2
"""Lines, and ways past them, that a sentence names; chosen by hand."""


@cause("HD305", "HD504", "HD508", explains=WentPast, order=371)
def went_on_without_it(case: Case, blame: Blame[WentPast]) -> Finding:
    """HD305 of a key of a store, HD504 of what is taken and let go, HD508 of anything else that ranks poll for."""
    found, culprits = blame.found, blame.culprits
    first = case.activities[found.waiting[0]]
    functions = {each.function for each in found.lines}
    lock = not functions.isdisjoint(names("lets_lock_go"))
    keys = all(waits_for_a_key(case.activities[rank]) for rank in found.waiting)
    asks = first.kind in POLLING
    waits = ("polls", "poll") if asks else ("waits", "wait")
    others = tuple(rank for rank in sorted(case.activities) if rank not in culprits)
    ways = found.ways[-_MOST_PLACES:]
    left = found.left
    by = Condition(left.guard.condition, left.file, left.guard.line) if left is not None else None
    lines = [line_of(each) for each in found.lines[:_MOST_PLACES]]
    return Finding(
        "HD305" if keys else "HD504" if lock else "HD508",
        sentence(
            [
                [Does(culprits, "has", "have"), " gone on without doing what "],
                [Does(found.waiting, *waits), " for", at(first.where)],
            ],
            where_they_wait(case, culprits),
        ),
        joined(
            ["what ends that wait is done at ", Joined(lines, " or ")],
            told(left, (culprits, others)) if left is not None else "",
            [Joined(ways, " or "), " may have led past it"] if ways else "",
            [Ranks(culprits), " went past it there"] if left is not None else "",
            _fewer(found.fewer) if found.fewer is not None else "",
            _lost(found.lost) if found.lost is not None else "",
        ),
        "do what leads to that line on every way out, an early return and an exception as well (`try` … `finally`, or "
        "a context manager), and give the wait a deadline",
        decided_at=by or (ways[-1] if ways else None),
    )


def _fewer(counted: tuple[str, dict[int, str]]) -> Message:
    """'By their counts, the others have done so more often (sent = 9 on rank 1 | 10 on ranks 0 and 2)'."""
    name, values = counted
    return [f"by their counts, the others have done so more often ({name} = ", Values(values, " | "), ")"]


def _lost(thread: MissingThread) -> Message:
    """'Ranks 0 and 1 have a thread at beat.py:28 run(), and rank 2 has none: it has ended there.'"""
    there: Message = [Does(thread.others, "has", "have"), " a thread at ", place(thread.where)]
    return [there, f", and rank {thread.rank} has none, so it has ended there"]
