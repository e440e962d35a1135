"""The job ended by itself: who went first, and why the others followed."""

from __future__ import annotations

import signal
from dataclasses import replace

from hangdoc.diagnosis.blame.arguments import Disagreement, disagreement
from hangdoc.diagnosis.blame.deciders import blame
from hangdoc.diagnosis.blame.divergences import blame_of
from hangdoc.diagnosis.blame.only_seen import nobody_seen
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Diverged, Explanation, Gone, Nothing
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.model.kinds import Confidence
from hangdoc.model.process import ProcessExit

_SENT_BY_LAUNCHERS = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGTERM})
_TEARDOWN_SECONDS = 0.1
"""A process's sockets close before the kernel has taken it down, so its peers can be seen to fail before it ends."""


def crashed(case: Case) -> tuple[Blame[Explanation], bool]:
    """The blame of a post-mortem, and whether anything went wrong at all."""
    failed = {r: s.exit for r, s in case.ranks.items() if s.exit is not None and _failed(s.exit)}
    if not failed and not case.job.exit_status:
        return Blame(Nothing(), confidence=Confidence.CERTAIN, sure="every rank ended with status 0"), False
    if not failed and all(snapshot.exit is not None for snapshot in case.ranks.values()):
        return Blame(Nothing(), confidence=Confidence.LIKELY, sure="every rank ended with status 0"), True
    first = _own_failures(case, failed)
    raised = bool(first) and bool(failed[first[0]].exception)
    aborted = None if raised else _aborted_in_a_call(case, failed)
    if aborted is not None:
        return aborted, True
    if first:
        sure = "first to fail, by its own error"
        if len(first) > 1:
            return Blame(
                Gone(), first, proved=True, confidence=Confidence.LIKELY, sure=f"{sure}, and others in the same way"
            ), True
        return Blame(Gone(), first, proved=True, confidence=Confidence.CERTAIN, sure=sure), True
    # Only victims: their peers hung up on them. Ask the sequences who parted.
    differing = disagreement(case, ended=True)
    if differing is not None:
        return blame_of(differing), True
    parted = blame(case)
    if isinstance(parted.found, Diverged):
        return parted, True
    unseen = tuple(r for r in sorted(case.ended) if case.ranks[r].exit is None)
    if unseen and failed:
        others = tuple((rank,) for rank in unseen[1:])
        sure = "the others fell out of a call when a peer left, and this one ended before anybody looked at it"
        return Blame(
            Gone(),
            unseen[:1],
            others,
            proved=True,
            confidence=Confidence.POSSIBLE if others else Confidence.LIKELY,
            sure=sure,
        ), True
    early = sorted(
        (s.exit.at, r) for r, s in case.ranks.items() if s.exit is not None and not _failed(s.exit) and failed
    )
    if early and early[0][0] < min(e.at for e in failed.values()) + _TEARDOWN_SECONDS:
        how = Confidence.POSSIBLE if case.hidden else Confidence.LIKELY
        return Blame(Gone(), (early[0][1],), proved=True, confidence=how, sure="first to end, with status 0"), True
    if case.hidden and failed:
        return replace(nobody_seen(), sure="the others fell out of a call when a peer left, which was not seen"), True
    order = sorted((e.at, r) for r, e in failed.items())
    culprits = (order[0][1],) if order else ()
    return Blame(Gone(), culprits, proved=True, confidence=Confidence.POSSIBLE, sure="first to end"), True


def _aborted_in_a_call(case: Case, failed: dict[int, ProcessExit]) -> Blame[Explanation] | None:
    """A rank aborted itself, and the others fell out of a collective or aborted as well: gloo does that to a rank that
    gets more bytes than it expects. It need not be the rank that differs."""
    ends = {r: end.at for r, end in failed.items() if end.signal == signal.SIGABRT and not end.exception}
    others_fell = any(e.exception and _in_collective(e) for e in failed.values())
    if not ends or not (case.gloo_refused or (others_fell and len(ends) == 1)):
        return None
    aborted = min(ends, key=ends.__getitem__)
    differing = disagreement(case, ended=True)
    if differing is not None and not _at_one_place(differing):
        parted = blame(case)
        if isinstance(parted.found, Diverged):
            return replace(parted, confidence=Confidence.LIKELY) if parted.confidence == Confidence.CERTAIN else parted
    if differing is not None:
        return replace(blame_of(differing), confidence=Confidence.POSSIBLE)
    # Whoever receives too much aborts, be it that it expects too little or that another one sends too much.
    others = tuple((rank,) for rank in case.ranks if rank != aborted)
    who = "the only one that aborted" if len(ends) == 1 else "the first to abort"
    return Blame(Gone(), (aborted,), others, proved=True, sure=f"{who}; who sent it too much was not seen")


def _at_one_place(found: Disagreement) -> bool:
    """Is it the same line that called it everywhere? Else two different calls have met."""
    return len({token.site for token in found.tokens.values()}) == 1


def _failed(end: ProcessExit) -> bool:
    return bool(end.signal or end.status or end.exception)


def _own_failures(case: Case, failed: dict[int, ProcessExit]) -> tuple[int, ...]:
    """Ranks whose end was no consequence: killed by somebody, or an error outside of a collective."""
    own = [
        (end.at, rank)
        for rank, end in failed.items()
        # An error in a call and then a signal is the end of one whose peer left.
        if (end.signal and end.signal not in _SENT_BY_LAUNCHERS and not (end.exception and _in_collective(end)))
        or (end.exception and not _in_collective(end))
        or (end.status and not end.exception and not _was_communicating(case, rank))
    ]
    if not own:
        return ()
    first = failed[min(own)[1]]
    # The same error at the same line of other ranks is no consequence: they failed as it did.
    alike = [r for _, r in own if first.exception and _alike(failed[r], first)]
    return tuple(sorted({min(own)[1], *alike}))


def _alike(end: ProcessExit, other: ProcessExit) -> bool:
    places = [next(((f.file, f.line) for f in user_stack(each.stack)), None) for each in (end, other)]
    return end.exception == other.exception and places[0] is not None and places[0] == places[1]


def _in_collective(end: ProcessExit) -> bool:
    """Did the error come out of torch.distributed (a peer hung up, a timeout, a mismatch)?"""
    return any("torch/distributed/" in f.file or f.function in names("runs_backward") for f in end.stack[:6])


def _was_communicating(case: Case, rank: int) -> bool:
    return rank in case.programs and bool(case.programs[rank].recording.pending)
