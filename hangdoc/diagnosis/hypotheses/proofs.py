"""Whom one fact alone proves to be to blame, whatever else there is: no weight stands against it.

Example: rank 1 is stopped by a signal, ranks 0 and 2 wait in an all_reduce → (1,) is proved to be 'held from outside'.
"""

from __future__ import annotations

from collections.abc import Iterable

from hangdoc.diagnosis.blame.arguments import disagreement_of
from hangdoc.diagnosis.blame.died_threads import died_thread
from hangdoc.diagnosis.blame.post_mortem import own_failures
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.hypotheses.suspects import Suspects
from hangdoc.diagnosis.state.endings import ended_well, is_echo
from hangdoc.diagnosis.state.wait_graph import distinct_waits
from hangdoc.model.kinds import GONE, ActivityKind

STANDS_STILL = "stands still for good"
"""Its end was seen, or it is held from outside, by its own threads and children, or in a circle of file locks: nothing
of the job's ends that."""
UNEQUAL = "gave other arguments than most"
RAISED = "failed by its own error first"
PROOFS = frozenset((STANDS_STILL, UNEQUAL, RAISED))

_HELD = frozenset(
    {
        *(ActivityKind.STOPPED, ActivityKind.DEBUGGER, ActivityKind.TERMINAL),
        *(ActivityKind.UNINTERRUPTIBLE, ActivityKind.GIL_HELD),
    }
)


def by_proofs(suspects: Suspects) -> None:
    """Adds them; all ranks of which one thing is proved are to blame together."""
    case = suspects.case
    if case.job.ended:
        suspects.add(_raised(case), RAISED)
    else:
        suspects.add(_still(case), STANDS_STILL)
    suspects.add(_unequal(case), UNEQUAL)


def _still(case: Case) -> Iterable[int]:
    """Ranks that are gone, held, or have lost a thread.

    An end without an error proves nothing: a rank may be done that others wait for in a call too many.
    """
    awaited = {rank for wait in distinct_waits(case.graph.waits) for rank in wait.on}
    yield from _in_a_circle(case)
    for rank, activity in case.activities.items():
        held = activity.kind in _HELD or rank in case.deadlocks
        lost = rank in awaited and died_thread(case, rank) is not None
        if held or lost or (activity.kind in GONE and _has_failed(case, rank)):
            yield rank


def _in_a_circle(case: Case) -> set[int]:
    """The ranks that wait for file locks which other ones of them hold, all of these as the kernel names them.

    Example: rank 0 waits for a lock of rank 1, rank 1 for one of rank 0, and rank 2 for both in an all_reduce → {0, 1}.
    """
    locked = {rank for rank, activity in case.activities.items() if activity.kind == ActivityKind.FILE_LOCK}
    holders = {wait.waiter: {*wait.on} for wait in case.graph.waits if wait.waiter in locked}
    circle = {*holders}
    while outside := {rank for rank in circle if not holders[rank] <= circle}:
        circle -= outside
    return circle


def _has_failed(case: Case, rank: int) -> bool:
    """True if its end was seen and was no consequence of another's, or was not seen and the others wait for it."""
    end = case.ranks[rank].exit
    return rank in case.graph.roots if end is None else not ended_well(case.ranks[rank]) and not is_echo(end)


def _raised(case: Case) -> Iterable[int]:
    failed = {r: s.exit for r, s in case.ranks.items() if s.exit is not None and not ended_well(s)}
    first = own_failures(case, failed)
    return first if first and failed[first[0]].exception else ()


def _unequal(case: Case) -> Iterable[int]:
    """The ranks of the rarest value of each call on whose arguments, or root, ranks disagree."""
    for history in case.histories:
        found = disagreement_of(case, history, ended=case.job.ended)
        rarest, *others = found.sides if found is not None else ((),)
        if others and len(rarest) < len(others[0]):
            yield from rarest
