"""The deciders that ask which rank a wait leads to: the roots of the wait-for graph.

A root is a rank that others wait for, and that waits for no rank itself. Example: ranks 0 and 2 wait in a barrier for
rank 1, which reads from a pipe → rank 1.
"""

from __future__ import annotations

from hangdoc.diagnosis.blame.alone_elsewhere import AloneElsewhere, alone_elsewhere
from hangdoc.diagnosis.blame.awaited_client import without_servers
from hangdoc.diagnosis.blame.how_sure import (
    ended_in_order,
    held_by_debugger,
    how_many_wait,
    how_sure_of_the_end,
    seen_states,
)
from hangdoc.diagnosis.blame.inquiry import Inquiry
from hangdoc.diagnosis.blame.not_finished import NotFinished, not_finished
from hangdoc.diagnosis.blame.only_seen import nobody_seen
from hangdoc.diagnosis.blame.thread_blame import ThreadWait
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import (
    Blame,
    CutOff,
    Gone,
    HeldUpUnseen,
    OutsideWait,
    Stuck,
)
from hangdoc.diagnosis.state.endings import ended_well
from hangdoc.diagnosis.state.unseen import hidden_text
from hangdoc.diagnosis.state.wait_graph import IMMOVABLE
from hangdoc.model.kinds import COMMUNICATING, MESSAGES, Confidence, WaitReason


def gone_roots(inquiry: Inquiry) -> Blame[Gone] | None:
    """Ranks that others wait for and that have ended or are stopped. Before differing arguments: equal ones would not
    help ranks that wait for one that is gone."""
    case = inquiry.case
    gone = tuple(sorted(r for r in case.graph.roots if case.activities[r].kind in IMMOVABLE))
    if not gone:
        return None
    how = Confidence.LIKELY if ended_in_order(case, gone) else how_sure_of_the_end(case, gone)
    proved, sure = not held_by_debugger(case, gone), seen_states(case, gone)
    left = tuple(sorted(set(case.activities) - set(gone)))
    if not case.has_history and len(left) < len(gone) and all(ended_well(case.ranks[rank]) for rank in gone):
        sure = f"{sure}; most ranks have ended well, so the others may have made a call too many"
        return Blame(Gone(), gone, (left,), proved=proved, sure=sure)
    return Blame(Gone(), gone, proved=proved, confidence=how, sure=sure)


def unseen_message(inquiry: Inquiry) -> Blame[Stuck] | None:
    """Messages that all others wait for. Before other roots: their partners may be any ranks that wait."""
    case = inquiry.case
    roots = case.graph.roots
    if case.streams or not roots or any(case.activities[rank].kind not in MESSAGES for rank in roots):
        return None
    waiting = {wait.waiter for wait in case.graph.waits}
    return Blame(Stuck(), proved={*waiting, *roots} == case.activities.keys())


def cut_off(inquiry: Inquiry) -> Blame[CutOff] | None:
    """Hosts that cannot reach each other. Before other roots: those that have what they need for one call already wait
    in the next, for ranks that will never get it."""
    case = inquiry.case
    roots = case.graph.roots & case.seen
    if not roots or not case.cuts or not case.programs:
        return None
    if any(activity.kind not in COMMUNICATING for rank, activity in case.activities.items() if rank in case.seen):
        return None
    sure = "every rank that was seen waits in a call, and data between hosts is not answered"
    return Blame(CutOff(), confidence=Confidence.LIKELY, sure=sure)


def waiting_roots(
    inquiry: Inquiry,
) -> Blame[OutsideWait | HeldUpUnseen] | Blame[AloneElsewhere] | Blame[ThreadWait] | Blame[NotFinished] | None:
    """Ranks that others wait for and that wait for no rank: they work, or wait for something outside the job."""
    case = inquiry.case
    if not case.graph.roots:
        return None
    roots = without_servers(case, _seen_roots(case))
    if not roots:
        # Dumps show all waits of the ranks that are here: where all end at hidden ones, one of these is to blame.
        unseen = case.graph.roots & case.hidden if case.job.mode == "dump" else ()
        return nobody_seen(tuple(sorted(unseen)))
    if not case.programs and all(case.activities[r].reason == WaitReason.UNKNOWN for r in roots):
        # Their own wait may be a collective or a message of the ranks that wait for them.
        waiting = tuple(sorted({w.waiter for w in case.graph.waits} - set(roots)))
        sure = "what they wait in could not be seen"
        return Blame(OutsideWait(), roots, (waiting,) if waiting else (), sure=sure)
    if alone := alone_elsewhere(case, roots):
        return alone
    alone_root = roots[0] if len(roots) == 1 and not case.hidden else None
    served = not_finished(case, alone_root) if alone_root is not None else None
    if served is not None:
        return served
    # The others wait for ranks that were not seen as well: what these do may explain the rest.
    hidden = tuple(sorted(case.graph.roots & case.hidden))
    sure = "; ".join(filter(None, (how_many_wait(case), hidden_text(case.job, hidden))))
    how = Confidence.POSSIBLE if hidden else Confidence.LIKELY
    return Blame(OutsideWait(), roots, confidence=how, sure=sure)


def _seen_roots(case: Case) -> tuple[int, ...]:
    """The seen ranks that others wait for; with hidden ranks, without those in a message: its peer may be hidden."""
    open_ended = MESSAGES if case.hidden else frozenset()
    return tuple(sorted(r for r in case.graph.roots & case.seen if case.activities[r].kind not in open_ended))
