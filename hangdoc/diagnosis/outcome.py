"""Whether the job hangs, is slow, or is healthy; and when a slow one will count as a hang."""

from __future__ import annotations

import math

from hangdoc.diagnosis.blame.asking import cannot_be_answered, waits_for_a_person
from hangdoc.diagnosis.blame.idle_server import waits_for_requests
from hangdoc.diagnosis.blame.nobody_works import nobody_works
from hangdoc.diagnosis.blame.odd_by_value import OutOfStep
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation, Nothing, OutsideWait, Supposed
from hangdoc.diagnosis.state.process import helpers_below, is_moving
from hangdoc.model.kinds import ActivityKind, Outcome
from hangdoc.model.wording import name_duration


def outcome_of(case: Case, found: Blame[Explanation]) -> Outcome:
    """Hang if nothing can end it, or if it stood still for long enough; else slow.

    Example: a rank sleeps and the others wait for it. It is slow until ``give_up_after``, and then a hang.
    """
    if case.job.mode == "log":
        return Outcome.HANG  # that it hangs is what the person says who gives its stacks
    if has_nothing_to_do(case, found):
        return Outcome.SLOW
    if (found.proved or will_never_go_on(case, found)) and not _child_answers(case):
        return Outcome.HANG
    if case.job.mode == "attach":
        return _outcome_of_a_look(case, found)
    if case.job.stalled_for >= case.job.give_up_after and not _working(case, found):
        return Outcome.HANG
    return Outcome.SLOW


def has_nothing_to_do(case: Case, found: Blame[Explanation]) -> bool:
    """True if the one culprit waits for a request from outside the job, and the others for its next command."""
    alone = isinstance(found.found, OutsideWait) and len(found.culprits) == 1
    return alone and waits_for_requests(case, found.culprits[0]) is not None


def will_never_go_on(case: Case, found: Blame[Explanation]) -> bool:
    """True if nothing can end the culprits' wait: a deadlock of their own threads, a prompt that reads a pipe, a key of
    the store while all ranks wait."""
    if not isinstance(found.found, OutsideWait | OutOfStep | Supposed):
        return False
    # Of ranks that are only supposed to be to blame, it is the others who wait for such a thing as well.
    outside = found.culprits if isinstance(found.found, OutsideWait) else tuple(case.activities)
    waits = {kind for rank in outside if (kind := case.activities[rank].kind) is not ActivityKind.IN_COLLECTIVE}
    if waits and waits <= {ActivityKind.STORE_WAIT, ActivityKind.REMOTE_CALL} and nobody_works(case):
        return True
    return any(rank in case.deadlocks or cannot_be_answered(case, rank) for rank in found.culprits)


def _outcome_of_a_look(case: Case, found: Blame[Explanation]) -> Outcome:
    """The outcome of an attach, where nobody timed the stall and the two looks are all there is.

    Somebody attached because the job looks frozen. So a culprit that waits for something outside the job counts as
    hung, and one that works or that a person can answer counts as slow.
    """
    moving = [case.activities[rank].moving for rank in case.seen]
    if isinstance(found.found, Nothing) or all(moving):
        return Outcome.HEALTHY if any(moving) else Outcome.SLOW
    asking = isinstance(found.found, OutsideWait) and all(waits_for_a_person(case, rank) for rank in found.culprits)
    return Outcome.SLOW if asking or _working(case, found) else Outcome.HANG


def _working(case: Case, found: Blame[Explanation]) -> bool:
    """True if a culprit still moves, or the rank that is to answer it works; where there is no culprit, if any does.
    Also where a child that is to answer any rank works."""
    ranks = [rank for rank in found.culprits or case.activities if rank in case.activities]
    return _child_answers(case) or any(case.activities[r].moving or _is_being_answered(case, r) for r in ranks)


def _is_being_answered(case: Case, rank: int) -> bool:
    """True if the rank waits for a thread of another rank whose process, or a child of it, works.

    Example: rank 0 waits in requests.post() for the event loop of rank 2, which has handed the request to a pool of
    processes: while one of these computes, the answer may come.
    """
    chain = case.chains.get(rank)
    if chain is None or chain.last.rank == rank:
        return False
    process = chain.last.process
    return is_moving(process) or any(map(is_moving, helpers_below(process)))


def _child_answers(case: Case) -> bool:
    """True if a child of a rank has the other end of a pipe or socket that a rank waits at, and works.

    Example: rank 0 reads a pipe into which a child of rank 2 writes once it has computed.
    """
    working = {
        (each.host, child.pid)
        for each in case.ranks.values()
        for child in (helpers_below(each.process) if each.process is not None else ())
        if is_moving(child)
    }
    waiting = [case.ranks[r] for r in case.seen if case.activities[r].kind in (ActivityKind.PIPE, ActivityKind.IO)]
    awaited = {
        (each.host, pid)
        for each in (waiting if working else ())
        for file in (each.process.blocking_files if each.process is not None else ())
        for pid in file.peers
    }
    return not working.isdisjoint(awaited)


def until_a_hang(case: Case, found: Blame[Explanation]) -> str:
    """When a job that is only slow will count as a hang; '' for one that works, and where nobody timed the stall."""
    left = case.job.give_up_after - case.job.stalled_for
    if case.job.mode in ("attach", "log") or not 0 < left < math.inf:
        return ""
    if _working(case, found) or has_nothing_to_do(case, found):
        return ""
    return f"If nothing moves, it counts as a hang in {name_duration(left)} (--give-up-after)."
