"""Faults beside the one that was blamed: in groups that share no rank with it, and that no other rank can explain.

Two things may go wrong at once in a large job. A clash of arguments, a sequence that needs a repair of its own, or a
rank that is at no call and has not issued what its group waits for: none of these follows from a fault elsewhere.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace

from hangdoc.diagnosis.blame.arguments import Disagreement, disagreement_of
from hangdoc.diagnosis.blame.divergences import decide
from hangdoc.diagnosis.blame.own_loop import LeftOwnLoop
from hangdoc.diagnosis.blame.precedent import blamed_by_precedent
from hangdoc.diagnosis.blame.siblings import departures
from hangdoc.diagnosis.bounds import TRIED
from hangdoc.diagnosis.calls.alignment import Gap, repairs
from hangdoc.diagnosis.calls.history import GroupHistory, Token
from hangdoc.diagnosis.calls.recorded_tokens import first_pending
from hangdoc.diagnosis.calls.unlike_calls import unlike_calls_paired
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.model.kinds import MESSAGES, Confidence


@dataclass(frozen=True, slots=True)
class Further:
    """``culprits`` as well are to blame, for what happens in another group."""

    culprits: tuple[int, ...]
    what: str
    """'arguments', 'root', 'calls', 'late', 'left' or 'alike'."""
    call: Token | None = None
    """The call that the group hangs in; None of what a rank left out or added."""
    left: LeftOwnLoop | None = None
    """What it did other than its siblings."""
    others: tuple[int, ...] = ()
    """The other members of groups whose calls part as those of the blamed one do."""


def further_faults(case: Case, found: Blame[Explanation]) -> list[Further]:
    """Faults of groups that have no rank in common with the blamed one's, the largest groups first."""
    if not case.programs or not found.culprits:
        return []
    taken = set(_concerned(found))
    further = _sisters(case, found)
    taken.update(rank for each in further for rank in (*each.culprits, *each.others))
    # Through messages all wait for each other.
    groups = [] if any(a.kind in MESSAGES for a in case.activities.values()) else case.histories
    for history in sorted(groups, key=lambda h: (-len(h.members), h.key)):
        if taken.isdisjoint(history.members) and len(further) < TRIED:
            for each in _of_group(case, history):
                further.append(each)
                taken.update(history.members)
                break
    # But nobody's wait makes a rank issue other calls than its siblings.
    parted = [each for each in departures(case) if each.rank not in taken and len(each.siblings) > 1]
    return [*further, *(Further((each.rank,), "left", left=each) for each in parted)][:TRIED]


def with_further(found: Blame[Explanation], further: list[Further]) -> Blame[Explanation]:
    """``found`` with the culprits of all faults; the sentence is then about several, so none of them is certain."""
    if not further:
        return found
    everybody = {*found.culprits, *(rank for each in further for rank in each.culprits)}
    sure = Confidence.LIKELY if found.confidence == Confidence.CERTAIN else found.confidence
    others = found.alternatives
    if len(others) == 1:  # what fits the other side of one group fits the other sides of its sisters
        others = (tuple(sorted({*others[0], *(rank for each in further for rank in each.others)})),)
    return replace(found, culprits=tuple(sorted(everybody)), alternatives=others, confidence=sure)


def _concerned(found: Blame[Explanation]) -> tuple[int, ...]:
    """The ranks of the group that the blamed fault is in."""
    if isinstance(found.found, Disagreement):
        return found.found.history.members
    if found.diverged is not None:
        return (*found.diverged.alignment.history.members, *found.culprits)
    return found.culprits


def _of_group(case: Case, history: GroupHistory) -> Iterator[Further]:
    """The fault that the group's own calls show."""
    waiting = _under_way(history)
    if not waiting or len(history.members) < 2:
        return
    call = min(waiting, key=lambda token: token.sequence)
    yield from _clashes(case, history, call)
    late = tuple(r for r in history.members if _is_at_rest(case, r) and history.issued(r) < call.sequence)
    if late:
        yield Further(late, "late", call)


def _sisters(case: Case, found: Blame[Explanation]) -> list[Further]:
    """The same fault in sister groups: their calls part at the same two lines, in the same way.

    Example: a mesh of two rows, in each of which the first rank alone gathers a tensor → that of the other row.
    """
    gap = found.diverged.gap if found.diverged is not None else None
    if gap is None or gap.mine is None or gap.theirs is None or case.streams:
        return []
    culprits: list[int] = []
    others: list[int] = []
    taken = set(_concerned(found))
    for history in case.histories:
        if taken.isdisjoint(history.members):
            candidates = repairs(history, case.ended & set(history.members))
            blamed = [decide(case, [candidate], proved=True) for candidate in candidates]
            alike = next((b for b in blamed if b.found.gap is not None and _part(b.found.gap) == _part(gap)), None)
            if alike is not None:
                culprits += alike.culprits
                others += (r for r in history.members if r not in alike.culprits)
                taken.update(history.members)
    ranks = tuple(sorted(culprits))
    return [Further(ranks, "alike", others=tuple(sorted(others)))] if ranks else []


def _part(gap: Gap) -> Hashable:
    """How the two sides of a gap part: which is at fault, and what each calls where."""
    sides = [token and (token.op, token.site) for token in (gap.token, gap.mine, gap.theirs)]
    return gap.kind, *sides


def _under_way(history: GroupHistory) -> list[Token]:
    """The first call of each member that it waits in."""
    lists = {id(calls): calls for calls in history.tokens.values()}.values()
    return [token for token in map(first_pending, lists) if token is not None]


def _is_at_rest(case: Case, rank: int) -> bool:
    """True if the rank was seen to be at no call, to wait for no rank and not to be at work."""
    waits = rank in case.streams.fronts or bool(case.graph.on(rank))
    return rank in case.programs and not waits and not case.activities[rank].moving


def _clashes(case: Case, history: GroupHistory, call: Token) -> Iterator[Further]:
    """Arguments that differ, then calls that differ and have one repair. The group hangs in ``call``."""
    differing = disagreement_of(case, history)
    if differing is not None:
        blamed = blamed_by_precedent(case, differing)
        yield Further(blamed.culprits, differing.what, differing.tokens[blamed.culprits[0]])
    # Without a device to run ahead of, few calls follow: what one group repairs may belong to another's fault.
    if case.streams and unlike_calls_paired(history):
        candidates = repairs(history)
        if len(candidates) == 1:
            gap: Gap | None = candidates[0].first
            yield Further(candidates[0].culprits, "calls", gap.token if gap is not None else call)
