"""The program that started the ranks waits for something that each of them gives it, and one has not."""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.diagnosis.blame.how_sure import at_one_line, nobody_acts
from hangdoc.diagnosis.blame.shared_by_processes import SIGNALLED, leads_to
from hangdoc.diagnosis.condition.stack_comparison import is_past
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.shared_values import what_signals
from hangdoc.diagnosis.state.process import blocking_thread, is_moving
from hangdoc.model.kinds import COMMUNICATING, GONE, Confidence
from hangdoc.model.process import Frame
from hangdoc.model.wording import ranks_text


@dataclass(frozen=True, slots=True)
class Unreported(Explanation):
    """The launcher waits ``at`` that line of the program for what each rank gives it at ``given_at``, by ``signal``."""

    at: Frame
    given_at: Frame
    signal: str


def unreported(case: Case) -> Blame[Unreported] | None:
    """The blame of the few ranks that have never come to the line at which the others gave the launcher what it waits
    for, while ranks wait for what only the launcher does: by the counters of lines, else because these ranks are past
    the line at which all others wait, who have given it before. None where neither tells.

    Example: the program takes `results.get()` once for each rank before it sets the event that all of them wait for;
    ranks 0, 1 and 3 have run `self.results.put(score)`, rank 2 has not → rank 2.
    """
    if case.hidden or not any(a.kind in SIGNALLED for a in case.activities.values()):
        return None
    for _, launcher in case.job.launchers:
        thread = blocking_thread(launcher)
        stack = thread.frames if thread is not None and not is_moving(launcher) else ()
        signal = what_signals(case.sources, stack) if stack else None
        if signal is None:
            continue
        at, method = signal
        ranks = sorted(case.activities)
        ran, never, unknown = case.table.split(ranks, at.file, at.line)
        sure = f"all other ranks have run that line, and {ranks_text(never)} never"
        if not 0 < len(never) < len(ran) or unknown:
            never = _past_the_others(case, at)
            sure = f"all others wait behind that line, and {ranks_text(never)} went on without waiting"
        if not never or any(_works(case, rank) for rank in never):
            continue  # it may still come to that line
        found = Unreported(user_stack(stack)[0], at, method)
        stuck = nobody_acts(case, tuple(r for r in ranks if case.activities[r].kind in SIGNALLED))
        return Blame(found, never, proved=stuck, confidence=Confidence.LIKELY, sure=sure)
    return None


def _works(case: Case, rank: int) -> bool:
    """True if the rank waits neither for ranks nor for a signal between processes: it computes, or reads what a child
    of its own writes."""
    activity = case.activities[rank]
    signalled = activity.kind in SIGNALLED and what_signals(case.sources, activity.stack) is not None
    return activity.kind not in COMMUNICATING | GONE and not signalled


def _past_the_others(case: Case, at: Frame) -> tuple[int, ...]:
    """The few ranks in a call that are past the line at which all others wait after they have come to ``at``; () where
    these are not all at one line behind it."""
    waiting = tuple(rank for rank, a in sorted(case.activities.items()) if a.kind in SIGNALLED)
    others = tuple(sorted(set(case.activities) - set(waiting)))
    if not 0 < len(others) < len(waiting) or not at_one_line(case, waiting):
        return ()
    stack = case.activities[waiting[0]].stack
    gave = any(leads_to(case.sources, frame, at) for frame in user_stack(stack))
    past = all(
        case.activities[rank].kind in COMMUNICATING
        and is_past(case.sources, case.activities[rank].stack, stack) == "certainly"
        for rank in others
    )
    return others if gave and past else ()
