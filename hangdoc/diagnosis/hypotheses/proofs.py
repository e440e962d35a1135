"""Whom one fact alone proves to be to blame, whatever else there is: no weight stands against it.

Example: rank 1 is stopped by a signal, ranks 0 and 2 wait in an all_reduce → (1,) is proved to be 'held from outside'.
"""

from __future__ import annotations

from collections.abc import Iterable

from hangdoc.diagnosis.blame.arguments import disagreement_of
from hangdoc.diagnosis.blame.died_threads import died_thread
from hangdoc.diagnosis.blame.post_mortem import own_failures
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.hypotheses.suspects import Suspects
from hangdoc.diagnosis.state.endings import ended_well, is_echo
from hangdoc.diagnosis.state.wait_graph import distinct_waits
from hangdoc.model.kinds import GONE, ActivityKind
from hangdoc.model.process import Process

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
    """The ranks whose processes wait for file locks that other ones of them hold, as the kernel names the holders.

    A process that has children, or threads of the user's beside its main one, may let a lock go by one of these.
    Example: rank 0 waits for a lock of rank 1, rank 1 for one of rank 0, and rank 2 for the same as rank 1 → {0, 1}.
    """
    processes = {(each.host, each.process.pid): rank for rank, each in case.ranks.items() if each.process is not None}
    holders: dict[int, set[int | None]] = {}
    for rank, activity in case.activities.items():
        process, host = case.ranks[rank].process, case.ranks[rank].host
        if activity.kind == ActivityKind.FILE_LOCK and process is not None and _has_one_thread(process):
            files = [file for file in process.blocking_files if file.operation in names("lock_file", of="kernel")]
            holders[rank] = {processes.get((host, pid)) for file in files for pid in file.peers} - {rank}
    circle = {rank for rank, of in holders.items() if of}
    while True:
        wanted = set().union(*(holders[rank] for rank in circle))
        closed = {rank for rank in circle & wanted if holders[rank] <= circle}
        if closed == circle:
            return closed
        circle = closed


def _has_one_thread(process: Process) -> bool:
    threads = process.last.threads if process.last is not None else ()
    return not process.children and sum(bool(user_stack(thread.frames)) for thread in threads) == 1


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
