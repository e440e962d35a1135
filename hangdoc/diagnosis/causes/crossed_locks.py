"""HD504: ranks hold a file lock each and wait for the one that another of them holds."""

from __future__ import annotations

from hangdoc.diagnosis.blame.wait_cycle import WaitCycle
from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.causes.phrases import at, cited, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.diagnosis.source.guards import CONDITIONS, guards
from hangdoc.model.message import Does, Joined, Message, Ranks, conditions_in, joined, sentence

_MOST_RANKS = 3
"""Ranks of the circle that a sentence names; chosen by hand."""
_MOST_COMPARED = 16
"""Ranks of the circle of which each is compared with all others; chosen by hand."""


@cause("HD504", explains=WaitCycle, order=319)
def crossed_locks(case: Case, blame: Blame[WaitCycle]) -> Finding | None:
    """HD504: two locks between processes, taken in opposite order."""
    holders = blame.found.lock_holders
    if not holders or not set(holders) <= set(blame.found.lock_waiters):
        return None
    clauses: list[Message] = []
    for rank in holders[:_MOST_RANKS]:
        activity = case.activities[rank]
        on = tuple(sorted(case.graph.on(rank) & set(holders)))
        held: Message = [", which ", Does(on, "holds", "hold")]
        clauses.append([Does((rank,), "is", "are"), f" {activity.text}", at(activity.where), held])
    others = tuple(rank for rank in sorted(case.seen) if rank not in holders)
    order = _order(case, holders)
    return Finding(
        "HD504",
        sentence(Joined(clauses, "; "), where_they_wait(case, others)),
        joined("each of them holds what another one waits for: they take these locks in different orders", order),
        "take the locks in one order on every rank, as by their sorted names, or one lock for both",
        decided_at=next(iter(conditions_in(order)), None),
    )


def _order(case: Case, holders: tuple[int, ...]) -> Message:
    """The innermost condition, one on the rank as well, under which one of them alone has run a line; '' where none is
    seen, or several are.

    Example: `if self.rank % 2: ⏎ order.reverse()`, and rank 1 alone has run the second line.
    """
    found: dict[tuple[str, int], Message] = {}
    for rank in holders if len(holders) <= _MOST_COMPARED else ():
        others = tuple(other for other in holders if other != rank)
        for file, line in case.table.ran_alone((rank,), others):
            tree = case.sources.function(file, line)
            around = [guard for guard in guards(tree, line) if guard.kind in CONDITIONS] if tree is not None else []
            if around:
                was = f" was {around[-1].taken} on "
                told: Message = [cited(around[-1], file), was, Ranks((rank,)), " and never on ", Ranks(others)]
                found.setdefault((file, around[-1].line), told)
    return next(iter(found.values())) if len(found) == 1 else ""
