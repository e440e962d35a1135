"""The job ended by itself: which rank failed first, and why the others followed."""

from __future__ import annotations

import math
import signal
from dataclasses import replace

from hangdoc.diagnosis.blame.arguments import Disagreement, disagreement
from hangdoc.diagnosis.blame.deciders import blame
from hangdoc.diagnosis.blame.only_seen import nobody_seen
from hangdoc.diagnosis.blame.precedent import blame_of
from hangdoc.diagnosis.calls.history import distinct
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Diverged, Explanation, Gone, Nothing
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.model.kinds import Confidence
from hangdoc.model.process import ProcessExit

_SENT_BY_LAUNCHERS = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGTERM})
_TEARDOWN_SECONDS = 0.1
"""The sockets of a process close before it has ended, so its peers can fail a moment before its own end is seen; chosen
by hand."""
_INNERMOST = 6
"""Frames of an error's stack in which torch's own is looked for; chosen by hand."""
_WORK_ERRORS = frozenset({"RuntimeError", "DistError", "DistBackendError", "DistNetworkError", "DistStoreError"})
"""What Work.wait() raises (torch 2.13)."""
_NO_ERROR_OF_ITS_OWN = "the others fell out of a call when a peer left, and this one ended without an error"


def crashed(case: Case) -> tuple[Blame[Explanation], bool]:
    """(the blame of a job that has ended, whether anything went wrong at all).

    Example: rank 1 raised a ValueError, ranks 0 and 2 then failed in their collective → (rank 1, True).
    """
    failed = {r: s.exit for r, s in case.ranks.items() if s.exit is not None and _failed(s.exit)}
    if not failed and not case.job.exit_status:
        return Blame(Nothing(), confidence=Confidence.CERTAIN, sure="every rank ended with status 0"), False
    if not failed and all(snapshot.exit is not None for snapshot in case.ranks.values()):
        return Blame(Nothing(), confidence=Confidence.LIKELY, sure="every rank ended with status 0"), True
    return _failed_by_itself(case, failed) or _differed(case) or _left_first(case, failed), True


def _failed_by_itself(case: Case, failed: dict[int, ProcessExit]) -> Blame[Explanation] | None:
    """The ranks whose end was no consequence of another's; None if all only lost their peers."""
    first = _own_failures(case, failed)
    raised = bool(first) and bool(failed[first[0]].exception)
    aborted = None if raised else _aborted_in_a_call(case, failed)
    if aborted is not None or not first:
        return aborted
    several = len(first) > 1
    how = Confidence.LIKELY if several else Confidence.CERTAIN
    sure = "first to fail, by its own error" + (", and others in the same way" if several else "")
    return Blame(Gone(), first, proved=True, confidence=how, sure=sure)


def _differed(case: Case) -> Blame[Explanation] | None:
    """The ranks whose last calls differ from the others', if all failed ranks are victims: their peers closed first."""
    differing = disagreement(case, ended=True)
    if differing is not None:
        return blame_of(differing)
    diverged = blame(case)
    return diverged if isinstance(diverged.found, Diverged) else None


def _left_first(case: Case, failed: dict[int, ProcessExit]) -> Blame[Explanation]:
    """The rank that ended first, where all calls match: the others failed because it was gone."""
    if not failed:
        return Blame(Gone(), proved=True, sure="no rank that was seen has failed")
    unseen = tuple(r for r in sorted(case.ended) if case.ranks[r].exit is None)
    if unseen:
        others = tuple((rank,) for rank in unseen[1:])
        how = Confidence.POSSIBLE if others else Confidence.LIKELY
        sure = "the others fell out of a call when a peer left, and this one ended before anybody looked at it"
        return Blame(Gone(), unseen[:1], others, proved=True, confidence=how, sure=sure)
    failed_at, first = min((end.at, rank) for rank, end in failed.items())
    left = _ended_well_before(case, failed_at + _TEARDOWN_SECONDS)
    if left is not None:
        how = Confidence.POSSIBLE if case.hidden else Confidence.LIKELY
        return Blame(Gone(), (left[0],), proved=True, confidence=how, sure=left[1])
    if case.hidden:
        return replace(nobody_seen(), sure="the others fell out of a call when a peer left, which was not seen")
    return Blame(Gone(), (first,), proved=True, confidence=Confidence.POSSIBLE, sure="first to end")


def _ended_well_before(case: Case, moment: float) -> tuple[int, str] | None:
    """(the rank that was the first to end without a failure, how sure that is) if it can have ended before ``moment``.

    Example: rank 1 lived at 9.2 s and was gone at 10.1 s, the others failed at 10.0 s → rank 1.
    """
    ended = sorted((s.exit.earliest, s.exit.at, r) for r, s in case.ranks.items() if s.exit and not _failed(s.exit))
    if not ended or ended[0][0] >= moment:
        return None
    _, at, rank = ended[0]
    return rank, "first to end, with status 0" if at < moment else _NO_ERROR_OF_ITS_OWN


def _aborted_in_a_call(case: Case, failed: dict[int, ProcessExit]) -> Blame[Explanation] | None:
    """The blame where gloo aborted a rank, which it does to one that gets more bytes than it expects; else None.

    Recognized by gloo's own words, or by one abort while the others failed in a collective. The rank that aborted need
    not be the one that differs.
    """
    aborted = _aborted_by_gloo(case, failed)
    if not aborted:
        return None
    differing = disagreement(case, ended=True)
    if differing is not None and not _at_one_place(differing):
        diverged = blame(case)
        if isinstance(diverged.found, Diverged):
            certain = diverged.confidence == Confidence.CERTAIN
            return replace(diverged, confidence=Confidence.LIKELY) if certain else diverged
    if differing is not None:
        return replace(_larger_first(blame_of(differing), aborted[0]), confidence=Confidence.POSSIBLE)
    # The rank that receives too much aborts, whether it expects too little or another one sends too much.
    others = tuple((rank,) for rank in case.ranks if rank != aborted[0])
    who = "the only one that aborted" if len(aborted) == 1 else "the first to abort"
    return Blame(Gone(), aborted[:1], others, proved=True, sure=f"{who}; who sent it too much was not seen")


def _aborted_by_gloo(case: Case, failed: dict[int, ProcessExit]) -> tuple[int, ...]:
    """The ranks that gloo aborted, the first one first; () where nothing shows that it was gloo."""
    ends = {r: end.at for r, end in failed.items() if end.signal == signal.SIGABRT and not end.exception}
    others_fell = any(e.exception and _in_collective(case, e) for e in failed.values())
    known = case.gloo_refused or (others_fell and len(ends) == 1)
    return tuple(sorted(ends, key=ends.__getitem__)) if known else ()


def _larger_first(found: Blame[Disagreement], aborted: int) -> Blame[Disagreement]:
    """Of two sides alike in number, the one with the larger tensors before the other.

    The rank that aborted took its journal along. It got more bytes than its own tensor has, so its tensor is none of
    the larger ones. Example: [16] on rank 0, [64] on rank 2, rank 1 aborted → rank 2, or else rank 0.
    """
    sides, tokens = [found.culprits, *found.alternatives], found.found.tokens
    if aborted in tokens or found.found.what != "arguments" or len(sides) != 2 or len(sides[0]) != len(sides[1]):
        return found
    first, second = sorted(sides, key=lambda ranks: -sum(math.prod(size) for size in tokens[ranks[0]].sizes or ()))
    return replace(found, culprits=first, alternatives=(second,))


def _at_one_place(found: Disagreement) -> bool:
    """True if all ranks called from the same line. If not, two different calls were paired."""
    return len({token.site for token in found.tokens.values()}) == 1


def _failed(end: ProcessExit) -> bool:
    return bool(end.signal or end.status or end.exception)


def _own_failures(case: Case, failed: dict[int, ProcessExit]) -> tuple[int, ...]:
    """The first rank that was killed from outside or failed outside of a collective, and those that failed alike.

    Example: ranks 0 and 2 raised one KeyError at data.py:8, rank 1 lost its peers in all_reduce → (0, 2).
    """
    own = [
        (end.at, rank)
        for rank, end in failed.items()
        # A rank whose peer left gets an error in its call, and then often a signal.
        if (end.signal and end.signal not in _SENT_BY_LAUNCHERS and not _is_victim(case, end))
        or (end.exception and not _in_collective(case, end))
        or (end.status and not end.exception and not _was_communicating(case, rank))
    ]
    if not own:
        return ()
    first = failed[min(own)[1]]
    # The same error at the same line of other ranks is no consequence of this one.
    alike = [r for _, r in own if first.exception and _alike(failed[r], first)]
    return tuple(sorted({min(own)[1], *alike}))


def _alike(end: ProcessExit, other: ProcessExit) -> bool:
    places = [next(((f.file, f.line) for f in user_stack(each.stack)), None) for each in (end, other)]
    return end.exception == other.exception and places[0] is not None and places[0] == places[1]


def _in_collective(case: Case, end: ProcessExit) -> bool:
    """True if the error came out of torch.distributed: a peer closed its connection, a timeout, a mismatch.

    The wait for an asynchronous call is native code: its error comes out of the user's own line. Python's other waits
    (of locks, events, processes) have frames of their own.
    """
    inner = end.stack[0] if end.stack else None
    line = case.sources.line(inner.file, inner.line) if inner is not None else None
    if line is not None and end.exception in _WORK_ERRORS and any(call in line for call in names("wait_call")):
        return True
    return any("torch/distributed/" in f.file or f.function in names("runs_backward") for f in end.stack[:_INNERMOST])


def _is_victim(case: Case, end: ProcessExit) -> bool:
    """True if a rank that a signal ended had only lost its peers, or had waited for one for too long.

    After a time-out, NCCL's watchdogs abort the ranks one after the other, those that waited first; the dumps tell that
    a call had timed out by then (HeartbeatMonitor of ProcessGroupNCCL, torch 2.13).
    """
    if end.exception:
        return _in_collective(case, end)
    return end.signal == signal.SIGABRT and end.at >= _first_time_out(case)


def _first_time_out(case: Case) -> float:
    """Unix time at which the first call that never completed had timed out; infinity where none could."""
    pending = (
        program.journal.calls[place]
        for program, _ in distinct(case.programs)
        if program.journal.source == "dump"
        for place in program.recording.pending
    )
    limits = (call.created_ns / 1e9 + call.timeout_ms / 1e3 for call in pending if call.created_ns and call.timeout_ms)
    return min(limits, default=math.inf)


def _was_communicating(case: Case, rank: int) -> bool:
    return rank in case.programs and bool(case.programs[rank].recording.pending)
