"""The job ended by itself: which rank failed first, and why the others followed."""

from __future__ import annotations

import math
import signal
from dataclasses import replace

from hangdoc.diagnosis.blame.arguments import Disagreement, arguments_of, arguments_text, disagreement
from hangdoc.diagnosis.blame.deciders import story
from hangdoc.diagnosis.blame.only_seen import nobody_seen
from hangdoc.diagnosis.blame.precedent import blame_of
from hangdoc.diagnosis.bounds import LISTED
from hangdoc.diagnosis.calls.history import END, distinct
from hangdoc.diagnosis.condition.choice import branch_points_of
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Diverged, EndedMeanwhile, Explanation, Gone, Nothing, Refused
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.state.aborted_calls import FROM_EXIT
from hangdoc.diagnosis.state.endings import began_with, is_echo, origin, timed_out
from hangdoc.model.kinds import Confidence
from hangdoc.model.process import ProcessExit, Raised
from hangdoc.model.wording import ranks_text

_SENT_BY_LAUNCHERS = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGTERM})
_TEARDOWN_SECONDS = 0.1
"""The sockets of a process close before it has ended, so its peers can fail a moment before its own end is seen; chosen
by hand."""
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
    first = own_failures(case, failed)
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
    if differing is not None and _at_one_place(differing):
        return blame_of(differing)
    diverged = story(case)
    if isinstance(diverged.found, Diverged):
        return replace(diverged, found=_with_its_own_call(case, diverged.found))
    return blame_of(differing) if differing is not None else None


def _with_its_own_call(case: Case, found: Diverged) -> Diverged:
    """``found``; where the others' end is missing on the culprits, the call that these made instead is one too many:
    they failed in it because the others had come to their end.

    Example: rank 2 goes round a loop once more, in a call that ranks 0 and 1, which ended with status 0, never made.
    """
    gap = found.gap
    if gap is None or gap.kind != "insert" or gap.token.op != END or gap.mine is None or gap.mine.op == END:
        return found
    own = replace(gap, kind="delete", token=gap.mine)
    alignment = replace(found.alignment, gaps=(own, *found.alignment.gaps[1:]))
    return replace(found, alignment=alignment, branch_points=tuple(branch_points_of(case, alignment)))


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
    gone = Blame(Gone(), (first,), proved=True, confidence=Confidence.POSSIBLE, sure="first to end")
    return _failed_in_its_call(failed) or _ended_meanwhile(case, failed) or gone


def _ended_meanwhile(case: Case, failed: dict[int, ProcessExit]) -> Blame[Explanation] | None:
    """The rank that its launcher ended while it was at no call, where all that failed had lost a peer, or waited for
    one too long.

    Its own error may still have been on its way: a `finally` suite, say, destroyed the group and then saved a file.
    Example: ranks 0 and 2 lost their peer and ended, rank 1 was in such a suite → rank 1.
    """
    fallen = tuple(sorted(rank for rank, end in failed.items() if is_echo(end)))
    ended = {rank for rank, end in failed.items() if end.signal in _SENT_BY_LAUNCHERS and not end.exception}
    left = sorted(rank for rank in ended if rank in case.programs and not _was_communicating(case, rank))
    if not fallen or len(fallen) + len(ended) < len(failed) or not left:
        return None
    rank = left[0]
    unheard = tuple((other,) for other in sorted(ended) if other != rank and other not in case.programs)
    others = tuple((other,) for other in left[1:]) + unheard
    late = any(timed_out(failed[other]) for other in fallen)
    lost = "waited too long for a peer" if late else "had lost a peer"
    sure = f"{ranks_text(fallen)} {lost}, and this one was at no call when its launcher ended it"
    how = Confidence.POSSIBLE if others else Confidence.LIKELY
    error = _error_under_way(case, rank)
    return Blame(EndedMeanwhile(error, fallen, late), (rank,), others, proved=True, confidence=how, sure=sure)


def _error_under_way(case: Case, rank: int) -> Raised | None:
    """What the exception began with whose except or finally suite the rank ran when it was last heard."""
    journal = case.ranks[rank].journal
    if journal is None or not journal.handled:
        return None
    return began_with((Raised(journal.handled, journal.handled_message, journal.handled_at), *journal.handled_from))


def _failed_in_its_call(failed: dict[int, ProcessExit]) -> Blame[Explanation] | None:
    """The first rank whose call itself failed: its error does not say that a peer had left, and others' do.

    Example: rank 1's forward() says that the last backward() had left out parameters, ranks 0 and 2 lost their peer →
    rank 1.
    """
    own = {rank: end for rank, end in failed.items() if end.message and not is_echo(end)}
    if not own or len(own) == len(failed):
        return None
    first = min(own, key=lambda rank: (own[rank].at, rank))
    ranks = tuple(sorted(r for r, end in own.items() if r == first or _alike(end, own[first])))
    sure = "its error is the only one that does not say that a peer had left"
    return Blame(Gone(), ranks, proved=True, confidence=Confidence.LIKELY, sure=sure)


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
    unlike = _made_elsewhere(case, aborted)
    if unlike or (differing is not None and not _at_one_place(differing)):
        diverged = story(case)
        if isinstance(diverged.found, Diverged):
            certain = diverged.confidence == Confidence.CERTAIN
            known = f"; of {ranks_text(unlike)} only the call is known in which it was aborted" if unlike else ""
            how = Confidence.LIKELY if certain else diverged.confidence
            return replace(diverged, confidence=how, sure=f"{diverged.sure}{known}")
    if differing is not None:
        return replace(_larger_first(blame_of(differing), aborted[0]), confidence=Confidence.POSSIBLE)
    call = _same_call_of_others(case, aborted)
    # The rank that receives too much aborts, whether it expects too little or another one sends too much.
    others = tuple((rank,) for rank in case.ranks if rank != aborted[0])
    who = "the only one that aborted" if len(aborted) == 1 else "the first to abort"
    found = call if call is not None else Gone()
    if call is not None and len(aborted) == 1 and len(call.others) > len(case.ranks) / 2:
        sure = f"{who}, and {ranks_text(call.others)} gave the call the same"
        return Blame(found, aborted, proved=True, confidence=Confidence.LIKELY, sure=sure)
    return Blame(found, aborted[:1], others, proved=True, sure=f"{who}; who sent it too much was not seen")


def _made_elsewhere(case: Case, aborted: tuple[int, ...]) -> tuple[int, ...]:
    """The ranks whose stack at their abort shows that they made their call at another line than others."""
    journals = ((rank, case.ranks[rank].journal) for rank in aborted)
    return tuple(rank for rank, journal in journals if journal is not None and journal.source == FROM_EXIT)


def _same_call_of_others(case: Case, aborted: tuple[int, ...]) -> Refused | None:
    """The last call of the ranks that left a record, if it is one call and they gave it the same."""
    calls = [program.tokens[-1] for rank, program in case.programs.items() if rank not in aborted and program.tokens]
    same = {(call.group, call.sequence, arguments_of(call)) for call in calls}
    if len(same) != 1 or arguments_text(calls[0]) is None:
        return None
    return Refused(calls[0], tuple(call.rank for call in calls))


def _aborted_by_gloo(case: Case, failed: dict[int, ProcessExit]) -> tuple[int, ...]:
    """The ranks that gloo aborted, the first one first; () where nothing shows that it was gloo."""
    ends = {r: end.at for r, end in failed.items() if end.signal == signal.SIGABRT and not end.exception}
    others_fell = any(e.exception and _lost_its_peers(case, e) for e in failed.values())
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


def own_failures(case: Case, failed: dict[int, ProcessExit]) -> tuple[int, ...]:
    """The first rank that was killed from outside or failed outside of a collective, and those that failed alike.

    Example: ranks 0 and 2 raised one KeyError at data.py:8, rank 1 lost its peers in all_reduce → (0, 2).
    """
    own = [
        (is_echo(end), end.at, rank)
        for rank, end in failed.items()
        # A rank whose peer left gets an error in its call, and then often a signal.
        if (end.signal and end.signal not in _SENT_BY_LAUNCHERS and not _is_victim(case, end))
        or (end.exception and not _lost_its_peers(case, end))
        or (end.status and not end.exception and not _was_communicating(case, rank))
    ]
    if not own:
        return ()
    # By kind, then by time: whoever says that a connection was lost may say it of one to another failed rank.
    earliest = min(own)[2]
    first = failed[earliest]
    # The same error at the same line of other ranks is no consequence of this one.
    alike = [r for _, _, r in own if first.exception and _alike(failed[r], first)]
    return tuple(sorted({earliest, *alike}))


def _alike(end: ProcessExit, other: ProcessExit) -> bool:
    began = [origin(each) for each in (end, other)]
    places = [next(((f.file, f.line) for f in user_stack(each.stack)), None) if each else None for each in began]
    return end.exception == other.exception and places[0] is not None and places[0] == places[1]


def _lost_its_peers(case: Case, end: ProcessExit) -> bool:
    """True if the error came out of torch.distributed, perhaps to be raised again as another: a peer closed its
    connection, a timeout, a mismatch.

    Not if it says that the call was misused: that is the rank's own failure.
    """
    if is_echo(end) and any(each.exception in _WORK_ERRORS for each in end.raised):
        return True
    out_of_a_call = [each for each in end.raised if _in_collective(case, each)]
    return any(each.exception in _WORK_ERRORS or not each.message for each in out_of_a_call)


def _in_collective(case: Case, raised: Raised) -> bool:
    """True if the error was raised in torch.distributed.

    The wait for an asynchronous call is native code: its error comes out of the user's own line. Python's other waits
    (of locks, events, processes) have frames of their own.
    """
    inner = raised.stack[0] if raised.stack else None
    line = case.sources.line(inner.file, inner.line) if inner is not None else None
    if line is not None and raised.exception in _WORK_ERRORS and any(call in line for call in names("wait_call")):
        return True
    innermost = raised.stack[:LISTED]
    return any("torch/distributed/" in f.file or f.function in names("runs_backward") for f in innermost)


def _is_victim(case: Case, end: ProcessExit) -> bool:
    """True if a rank that a signal ended had only lost its peers, or had waited for one for too long.

    After a time-out, NCCL's watchdogs abort the ranks one after the other, those that waited first; the dumps tell that
    a call had timed out by then (HeartbeatMonitor of ProcessGroupNCCL, torch 2.13).
    """
    if end.exception:
        return _lost_its_peers(case, end)
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
