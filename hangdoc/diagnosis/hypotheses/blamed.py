"""The ranks to blame: those of the story that fits, unless more speaks for others."""

from __future__ import annotations

from dataclasses import replace

from hangdoc.diagnosis.blame.deciders import story
from hangdoc.diagnosis.blame.divergences import all_groups_are_whole
from hangdoc.diagnosis.blame.only_seen import only_seen
from hangdoc.diagnosis.bounds import NAMED
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.execution.parting import Seen
from hangdoc.diagnosis.explanation import Blame, Diverged, Explanation, Stuck, Supposed
from hangdoc.diagnosis.hypotheses.formed import repair_of
from hangdoc.diagnosis.hypotheses.judge import LIKELY, Hypothesis, hypotheses
from hangdoc.diagnosis.hypotheses.messages import LEFT_OUT
from hangdoc.diagnosis.hypotheses.proofs import STANDS_STILL
from hangdoc.diagnosis.hypotheses.waits import SEND_FIRST
from hangdoc.diagnosis.messages.faults import left_out, skipped_by
from hangdoc.model.kinds import MESSAGES, Confidence, WaitReason
from hangdoc.model.wording import ranks_text

_NEEDED = {Confidence.LIKELY: 0.9, Confidence.POSSIBLE: LIKELY}
"""The share from which on other ranks are blamed than those of a story. Judgement: of the saved cases 14 more are right
from 0 on, but there the judge has been weighed, and stories are read by people."""

_BREAKS_A_TIE = 0.9
"""The share from which on the ranks of a story are no more one of several sets that fit: as for other ranks."""

_UNSEEN = (WaitReason.UNKNOWN, WaitReason.UNNAMED)
"""Waits that may be in a call or a message of any kind."""

_MOST_SURE = 0.99
"""Evidence is no proof."""


def blame(case: Case) -> Blame[Explanation]:
    """Who is to blame, and by which story; ``Supposed`` where no story names the likeliest ranks.

    A story that is certain needs no other evidence, and one that lays the hang to no rank is not about ranks. Any other
    gives way where much more speaks for others, and not where it tells of some of these: further faults are told apart.
    """
    told = story(case)
    if isinstance(told.found, Stuck):
        return only_seen(replace(_of_the_stuck(case), proved=told.proved), case.hidden, case.seen)
    if told.confidence == Confidence.CERTAIN or not told.culprits:
        return told
    judged = hypotheses(case, told)
    if judged and _breaks_tie(case, told, judged[0]):
        sure = f"{told.sure}; {_points_to(judged[0])}"
        return replace(told, alternatives=(), confidence=Confidence.LIKELY, sure=sure)
    if not judged or judged[0].share < _NEEDED[told.confidence]:
        return told
    if {*told.culprits} <= {*judged[0].culprits} and not _are_all_sides(told, judged[0]):
        return told
    return replace(_supposed(case, judged), proved=told.proved or bool(case.graph.stuck))


def _of_the_stuck(case: Case) -> Blame[Supposed]:
    """The likeliest; certain of the rank that left a message out once, as the only test of its way to it that is
    recorded to have come out otherwise once. Where nothing tells a rank of a circle from the others, it is the form of
    the circle that is wrong."""
    judged = hypotheses(case)
    first = judged[0]
    if any(each.kind in MESSAGES and each.peer is None for each in case.activities.values()):
        found = _supposed(case, judged, open_peers=True)
        return replace(found, sure=f"{found.sure}; which ranks some messages are for, or from, could not be seen")
    by = _skipped(case, first)
    if by is not None:
        tests = f"of the tests before it, `{by.guard.condition}` alone is recorded to have come out otherwise once"
        sure = f"{ranks_text(first.culprits)} left out one message of those that it had passed at a line; {tests}"
        known = Supposed(repair_of(case, first.culprits), by)
        return Blame(known, first.culprits, confidence=Confidence.CERTAIN, sure=sure)
    circle = next((each.culprits for each in judged if SEND_FIRST in each.evidence), ())
    if {*first.culprits} <= {*circle} and first.share < LIKELY:
        sure = "each of them waits in a send to the next at one line, and none of them in a recv"
        return Blame(Supposed(), circle, confidence=Confidence.LIKELY, sure=sure)
    found, stuck = _supposed(case, judged), case.graph.stuck & case.seen
    who = "no rank" if stuck >= case.seen else f"none of {ranks_text(tuple(sorted(stuck)))}"
    return replace(found, sure=f"{who} can go on by itself; {found.sure}") if stuck else found


def _skipped(case: Case, likeliest: Hypothesis) -> Seen | None:
    """The test that is recorded to have come out otherwise once on the rank that left a message out once; None where
    others are likely to blame, or ranks or messages are not known."""
    if LEFT_OUT not in likeliest.evidence or likeliest.share < LIKELY or case.hidden:
        return None
    left = left_out(case)
    return skipped_by(case, left) if left is not None and left.known else None


def _breaks_tie(case: Case, told: Blame[Explanation], likeliest: Hypothesis) -> bool:
    """True if the story names one of several equally small repairs of calls, and much more speaks for that one: not
    where some ranks, or which group a call is of, or a message's peer, could not be seen."""
    found = told.found
    gap = found.gap if type(found) is Diverged and told.alternatives and not found.alignment.history.blind else None
    activities = case.activities.values()
    messages = any(each.kind in MESSAGES or each.reason in _UNSEEN for each in activities)
    whole = case.job.mode != "log" and all_groups_are_whole(case)
    seen = not case.hidden and not messages and (bool(case.programs) or whole)
    same = gap is not None and gap.token.op != "new_group" and likeliest.culprits == told.culprits
    return seen and same and likeliest.share >= _BREAKS_A_TIE


def _are_all_sides(told: Blame[Explanation], likeliest: Hypothesis) -> bool:
    """True if the story leaves several sides, and all of them together are proved to stand still for good.

    Example: rank 0 or rank 1, each of which waits for a file lock that the other one holds → True of (0, 1).
    """
    sides = {rank for side in (told.culprits, *told.alternatives) for rank in side}
    return bool(told.alternatives) and sides == {*likeliest.culprits} and STANDS_STILL in likeliest.evidence


def _supposed(case: Case, judged: list[Hypothesis], *, open_peers: bool = False) -> Blame[Supposed]:
    """That it is these ranks, however sure, does not prove what is said of them; with ``open_peers``, others may be
    those that a message is for."""
    first, *others = judged
    found = Supposed(repair_of(case, first.culprits))
    sure = _points_to(first)
    if first.share >= LIKELY and not open_peers:
        return Blame(found, first.culprits, confidence=Confidence.LIKELY, sure=sure)
    also = tuple(each.culprits for each in others[:NAMED])
    return Blame(found, first.culprits, also, confidence=Confidence.POSSIBLE, sure=sure)


def _points_to(likeliest: Hypothesis) -> str:
    return f"{min(likeliest.share, _MOST_SURE):.0%} of the evidence points to {ranks_text(likeliest.culprits)}"
