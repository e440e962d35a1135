"""Many ranks wait at one line for something that is no rank, and the few that wait for them are elsewhere.

What the many wait for is unknown to all other rules: a library's queue, a protocol of the program's own. But ranks of
one job are alike. Where most are at one line and a few are not, it is rarely the many that went wrong: the few
left out their part, or came past it another way. Of 33 saved hangs whose own rules were switched off, that was so in
28; the others were remote calls and keys of the store, of which more is known.

Example: ranks 0, 1 and 3 wait for a semaphore of multiprocessing's at train.py:40, and rank 2 in the barrier at
train.py:52 → rank 2.
"""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.diagnosis.blame.how_sure import at_one_line, has_children, nobody_acts
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.own_names import own_name_polled
from hangdoc.diagnosis.source.shared_values import tests_of
from hangdoc.diagnosis.source.syntax import innermost_loop
from hangdoc.diagnosis.state.process import blocking_thread, descendants, helpers_below, is_moving
from hangdoc.model.kinds import ActivityKind, Confidence, WaitReason
from hangdoc.model.process import Frame, OpenFile, Process, Thread
from hangdoc.model.wording import ranks_text

_UNNAMED = frozenset(
    {
        ActivityKind.SLEEPING,
        ActivityKind.LOCK,
        ActivityKind.FILE_LOCK,
        ActivityKind.PIPE,
        ActivityKind.IO,
        ActivityKind.EVENT_LOOP,
    }
)
"""Waits that may be for a rank without showing it."""
_MAY_BE_FOR_A_RANK = frozenset({None, WaitReason.UNKNOWN, WaitReason.SHARED_LOCK, WaitReason.QUEUE})
"""A task, a pool or a signal has a giver of its own."""
_TCP = "socket:tcp "
_LONGEST_PAUSE = 60.0
"""Seconds of a sleep after which it is none between two looks at something. Judgement."""


@dataclass(frozen=True, slots=True)
class AloneElsewhere(Explanation):
    """The culprits wait for ``waiting``, who are more, and all of whom wait at one line for what nobody brings."""

    waiting: tuple[int, ...]


def alone_elsewhere(case: Case, roots: tuple[int, ...]) -> Blame[AloneElsewhere] | None:
    """The blame of the ranks that wait for ``roots``, where these are more and alike; None else."""
    kinds = {case.activities[rank].kind for rank in roots}
    reasons = {case.activities[rank].reason for rank in roots}
    if not reasons <= _MAY_BE_FOR_A_RANK:
        return None
    if len(roots) < 2 or case.hidden or not kinds <= _UNNAMED or len(kinds) > 1:
        return None
    if any((process := case.ranks[rank].process) is not None and process.named_locks for rank in roots):
        return None  # whose lock that is, and since when, is known
    if not all(_may_be_for_a_rank(case, rank) for rank in roots) or _child_works(case):
        return None
    if any(activity.moving for activity in case.activities.values()) or not at_one_line(case, roots):
        return None
    few = tuple(sorted({wait.waiter for wait in case.graph.waits} & case.seen - set(roots)))
    where = case.activities[roots[0]].where
    if not few or where is None or own_name_polled(case.sources, where) is not None:
        return None
    if len(few) >= len(roots):
        return _giver(case, roots, few, where)
    sure = f"{ranks_text(roots)} are at one line, and {ranks_text(few)} alone {'is' if len(few) == 1 else 'are'} not"
    if _asks_a_stranger(case, roots):
        sure = f"{sure}; or what they wait for, which is no process of the job, does not answer"
        return Blame(AloneElsewhere(roots), few, (roots,), confidence=Confidence.POSSIBLE, sure=sure)
    proved = nobody_acts(case, roots) and not any(has_children(case, rank) for rank in roots)
    return Blame(AloneElsewhere(roots), few, proved=proved, confidence=Confidence.LIKELY, sure=sure)


def _giver(case: Case, roots: tuple[int, ...], few: tuple[int, ...], where: Frame) -> Blame[AloneElsewhere] | None:
    """The blame of the only rank that never waits there, where some that have waited there have gone on: it is the one
    that lets the others go on.

    Example: ranks 2 and 3 wait for the condition of a page in shared memory, rank 1 has been woken, and rank 0, which
    writes the page, calls `changed.notify()` once → rank 0.
    """
    _, givers, unknown = case.table.split(few, where.file, where.line)
    if len(givers) != 1 or unknown or len(few) < 2:
        return None
    sure = f"{ranks_text(givers)} alone has never waited there, and others that have went on"
    return Blame(AloneElsewhere(roots), givers, (roots,), confidence=Confidence.POSSIBLE, sure=sure)


def _may_be_for_a_rank(case: Case, rank: int) -> bool:
    """False for a sleep between no two looks at something, and for a wait for a file, for a child of the rank's own or
    for a server on a host that has no rank.

    Examples: `time.sleep(600)`; a read of a file on NFS; a recv from 52.1.2.3:443 in a job on one host.
    """
    process = case.ranks[rank].process
    thread = blocking_thread(process) if process is not None else None
    if process is None or thread is None:
        return True
    if case.activities[rank].kind == ActivityKind.SLEEPING:
        return _looks_again(case, rank, thread)
    return not any(_is_outside(case, process, thread, file) for file in process.blocking_files)


def _looks_again(case: Case, rank: int, thread: Thread) -> bool:
    """True if the sleep is in a loop that something it asks ends, or in a function that such a loop calls."""
    for frame in user_stack(case.activities[rank].stack)[:2]:
        tree = case.sources.function(frame.file, frame.line)
        loop = innermost_loop(tree, frame.line)
        if loop is not None:
            return bool(tests_of(loop)) and (thread.wakes_in or 0.0) < _LONGEST_PAUSE
    return False


def _is_outside(case: Case, process: Process, thread: Thread, file: OpenFile) -> bool:
    if file.target.startswith("/"):
        return not (thread.wchan or "").startswith((*names("pipe", of="kernel"), *names("pipe_open", of="kernel")))
    if file.target.startswith("pipe:"):
        return bool(file.peers) and {process.pid, *(child.pid for child in descendants(process))}.issuperset(file.peers)
    elsewhere = file.target.startswith(_TCP) and not file.peers
    return elsewhere and len({each.host for each in case.ranks.values()}) == 1


def _asks_a_stranger(case: Case, ranks: tuple[int, ...]) -> bool:
    """True if no process of the job has the other end of a socket at which one of the ranks waits."""
    processes = [each.process for each in case.ranks.values() if each.process is not None]
    processes += [launcher for _, launcher in case.job.launchers]
    own = {process.pid for each in processes for process in (each, *descendants(each))}
    waiting = [process for rank in ranks if (process := case.ranks[rank].process) is not None]
    sockets = (file for process in waiting for file in process.blocking_files if file.target.startswith(_TCP))
    return any(own.isdisjoint(file.peers) for file in sockets)


def _child_works(case: Case) -> bool:
    """True if a child of a rank is at work, which may bring what is waited for."""
    processes = (each.process for each in case.ranks.values() if each.process is not None)
    return any(is_moving(child) for process in processes for child in helpers_below(process))
