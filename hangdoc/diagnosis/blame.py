"""Who is to blame? An ordered list of deciders: the first that answers decides.

A proved divergence outranks a root of the wait-for graph: a rank asleep in correct code is not guilty. Ties between
repairs are broken by a rank guard, then by the ranks' own history; what remains is said to be only possible.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

from hangdoc.diagnosis.activity import waits_for_a_key
from hangdoc.diagnosis.alignment import Alignment, all_repairs, cheapest, crossed_before, repairs
from hangdoc.diagnosis.asking import cannot_be_answered, waits_for_a_person
from hangdoc.diagnosis.case import Case
from hangdoc.diagnosis.creations import missing_creations
from hangdoc.diagnosis.culprit import (
    AllArrived,
    Blame,
    Diverged,
    Explanation,
    Gone,
    HeldUpUnseen,
    Nothing,
    OutsideWait,
    SeparateMeetings,
    UnseenMessages,
)
from hangdoc.diagnosis.cycle import cycle
from hangdoc.diagnosis.disagreement import Disagreement, disagreement
from hangdoc.diagnosis.inferred import apart, behind_rooted, beside_unnamed, elsewhere_standing, from_stacks
from hangdoc.diagnosis.meeting import meeting_places
from hangdoc.diagnosis.moment import in_its_group, settle
from hangdoc.diagnosis.replay import completes, completing
from hangdoc.diagnosis.sequences import END, GroupHistory, Token, merged, met_unlike
from hangdoc.diagnosis.standing import is_behind
from hangdoc.diagnosis.ties import choose, made_later, retell, told_ranks
from hangdoc.diagnosis.unmet import odd_message, partner, unseen_partner
from hangdoc.diagnosis.unseen import all_on_this_host, nobody_seen, only_seen, told_hidden
from hangdoc.diagnosis.waits import IMMOVABLE
from hangdoc.model.kinds import MESSAGES, ActivityKind, Confidence, WaitReason

_MOST_GROUPS = 8
_MOST_JOINED = 3
_MOST_NAMED = 8


@dataclass(frozen=True)
class Inquiry:
    """What several deciders ask of the case, computed once."""

    case: Case

    @cached_property
    def divergence(self) -> Blame[Diverged] | None:
        """The best repair of the ranks' call sequences."""
        return _divergence(self.case)

    @cached_property
    def disagreement(self) -> Blame[Disagreement] | None:
        """One call that all ranks make with different arguments or roots.

        Stacks alone show a call that is missing before they show its root, and a root that differs explains more;
        where histories prove the divergence, it is not asked for.
        """
        found = self.divergence
        settled = found is not None and found.proved and self.case.programs
        return None if settled else _disagreement(self.case)


Decider = Callable[[Inquiry], "Blame[Explanation] | None"]


def blame(case: Case) -> Blame[Explanation]:
    """Decide who must change, and how sure that is. A rank that was not seen is never blamed."""
    inquiry = Inquiry(case)
    found = next(found for decide in DECIDERS if (found := decide(inquiry)) is not None)
    return only_seen(found, case.hidden, case.seen)


def missing_group(inquiry: Inquiry) -> Blame[Diverged] | None:
    """A group that some ranks never made. First: no call of such a group can match, whatever else differs."""
    case = inquiry.case
    created = missing_creations(case)
    if not created:
        return None
    found = _decide(case, created, proved=True)
    gap = found.found.gap
    if found.confidence == Confidence.CERTAIN and gap is not None and gap.token.frame is None:
        sure = f"{found.sure}; the line that made the group could not be seen"
        return replace(found, confidence=Confidence.LIKELY, sure=sure)
    if found.confidence == Confidence.CERTAIN and not case.programs:
        sure = "the groups of all ranks seen, their call sequences not"
        return replace(found, confidence=Confidence.LIKELY, sure=sure)
    return found


def divergence(inquiry: Inquiry) -> Blame[Diverged] | None:
    """Calls that can't match any more. Before the graph's roots, who may be innocent: they wait in correct code."""
    found = inquiry.divergence
    if found is None or inquiry.disagreement is not None:
        return None
    return found if found.proved or not inquiry.case.graph.roots else None


def gone_roots(inquiry: Inquiry) -> Blame[Gone] | None:
    """Ranks that others wait for and that have ended or are stopped. Before arguments that differ: who is gone will
    not bring the others on even with equal ones."""
    case = inquiry.case
    gone = tuple(sorted(r for r in case.graph.roots if case.activities[r].kind in IMMOVABLE))
    if not gone:
        return None
    how = Confidence.LIKELY if _ended_in_order(case, gone) else _how_sure_of_the_end(case, gone)
    return Blame(Gone(), gone, proved=not _looked_at(case, gone), confidence=how, sure=_seen_states(case, gone))


def differing_arguments(inquiry: Inquiry) -> Blame[Disagreement] | None:
    """One call with different arguments. Before the stories of the graph: here all ranks are in that call."""
    return inquiry.disagreement


def stuck_ranks(inquiry: Inquiry) -> Blame[Explanation] | None:
    """Ranks that no future step sets free. What is most particular comes first: a divergence that is not proved, a
    message that went astray, a partner, the order across groups, the places of the stacks; a circle is always there."""
    case = inquiry.case
    if not case.graph.stuck:
        return None
    deciders = (odd_message, partner, _across_groups, _standing, cycle)
    return inquiry.divergence or next(found for decide in deciders if (found := decide(case)) is not None)


def unseen_message(inquiry: Inquiry) -> Blame[Explanation] | None:
    """A message whose peer nothing shows. Before other roots: its partner may be any rank that waits."""
    return unseen_partner(inquiry.case)


def waiting_roots(inquiry: Inquiry) -> Blame[OutsideWait | HeldUpUnseen] | None:
    """Ranks that others wait for and that wait for no rank: for something outside, or they work."""
    case = inquiry.case
    if not case.graph.roots:
        return None
    roots = _seen_roots(case)
    if not roots:
        return nobody_seen()
    if not case.programs and all(case.activities[r].reason == WaitReason.UNTOLD for r in roots):
        # It may as well be a collective, or a message, of those that wait.
        waiting = tuple(sorted({w.waiter for w in case.graph.waits} - set(roots)))
        sure = "what they wait in could not be seen"
        return Blame(OutsideWait(), roots, (waiting,) if waiting else (), sure=sure)
    # The others wait for ranks that were not seen as well: what these do may explain the rest.
    hidden = tuple(sorted(case.graph.roots & case.hidden))
    sure = "; ".join(filter(None, (_how_many_wait(case), told_hidden(case.job, hidden))))
    how = Confidence.POSSIBLE if hidden else Confidence.LIKELY
    return _unless_gone_by(case, Blame(OutsideWait(), roots, confidence=how, sure=sure))


def _seen_roots(case: Case) -> tuple[int, ...]:
    """The ranks that were seen of those that the others wait for. A message may be to or from one that was not."""
    open_ended = MESSAGES if case.hidden else frozenset()
    return tuple(sorted(r for r in case.graph.roots & case.seen if case.activities[r].kind not in open_ended))


def all_arrived(inquiry: Inquiry) -> Blame[AllArrived] | None:
    """Everybody is in the same call. From here on the graph is empty: nobody waits for a rank that is elsewhere."""
    case = inquiry.case
    if not any(a.kind == ActivityKind.IN_COLLECTIVE for a in case.activities.values()):
        return None
    if not case.programs:
        return Blame(AllArrived(), sure="all stand in the same call; what parted them lies before, out of sight")
    return Blame(AllArrived(), confidence=Confidence.LIKELY, sure="every rank has entered the same call")


def held_up_unseen(inquiry: Inquiry) -> Blame[HeldUpUnseen] | None:
    """Ranks that wait for others while some were not seen. After those who are all in one call: they name it."""
    case = inquiry.case
    waiting = MESSAGES | {ActivityKind.STORE_WAIT}
    if not case.hidden or not any(case.activities[r].kind in waiting for r in case.seen):
        return None
    return nobody_seen()


def ended_ranks(inquiry: Inquiry) -> Blame[Gone | OutsideWait] | None:
    """Some ranks have ended, and nothing shows that the others wait for them."""
    case = inquiry.case
    left = tuple(sorted(set(case.activities) - case.ended))
    if not case.ended or not left:
        return None
    if all(waits_for_a_key(case.activities[rank]) for rank in left):
        sure = "the others wait for a store key; who was to set it cannot be seen"
        return Blame(Gone(), tuple(sorted(case.ended)), (left,), proved=True, sure=sure)
    return Blame(OutsideWait(), left, confidence=Confidence.LIKELY, sure="the other ranks have ended")


def separate_meetings(inquiry: Inquiry) -> Blame[SeparateMeetings] | None:
    """Ranks that wait for the others where the others are not. After those that ended: they need not have met."""
    places = meeting_places(inquiry.case)
    sides = sorted(places.values(), key=lambda ranks: (len(ranks), ranks[0] == 0))
    if len(sides) < 2:
        return None
    odd = tuple(sorted(rank for ranks in sides[:-1] for rank in ranks))
    tie = len(sides[0]) == len(sides[-1])
    return Blame(
        SeparateMeetings(places),
        odd,
        (tuple(sides[-1]),) if tie else (),
        proved=True,
        confidence=Confidence.POSSIBLE if tie else Confidence.LIKELY,
        sure="the address that each rank waits at",
    )


def gone_ranks(inquiry: Inquiry) -> Blame[Gone] | None:
    """Ranks that have ended or are stopped, for whom nobody waits yet."""
    case = inquiry.case
    gone = tuple(sorted(r for r, a in case.activities.items() if a.kind in IMMOVABLE))
    if not gone:
        return None
    return Blame(
        Gone(),
        gone,
        proved=not _looked_at(case, gone),
        confidence=_how_sure_of_the_end(case, gone),
        sure=_seen_states(case, gone),
    )


def unseen_messages(inquiry: Inquiry) -> Blame[UnseenMessages] | None:
    """All wait for messages, and nothing shows with whom."""
    activities = inquiry.case.activities.values()
    if not activities or any(a.kind not in MESSAGES or a.moving for a in activities):
        return None
    return Blame(UnseenMessages(), proved=True, sure="which rank each message is for, or from, could not be seen")


def asking_ranks(inquiry: Inquiry) -> Blame[OutsideWait] | None:
    """Ranks that wait for a person, for whom nobody waits yet."""
    case = inquiry.case
    asking = tuple(r for r in sorted(case.activities) if waits_for_a_person(case, r) or cannot_be_answered(case, r))
    if not asking:
        return None
    return Blame(OutsideWait(), asking, confidence=Confidence.LIKELY, sure="no rank waits for another")


def nothing(_inquiry: Inquiry) -> Blame[Nothing]:
    """Last: nobody waits for anybody."""
    return Blame(Nothing(), confidence=Confidence.LIKELY, sure="no rank waits for another")


DECIDERS: tuple[Decider, ...] = (
    missing_group,
    divergence,
    gone_roots,
    differing_arguments,
    stuck_ranks,
    unseen_message,
    waiting_roots,
    all_arrived,
    held_up_unseen,
    ended_ranks,
    separate_meetings,
    gone_ranks,
    unseen_messages,
    asking_ranks,
    nothing,
)
"""In the order in which they are asked; each says why it stands where it stands."""


def _unless_gone_by(case: Case, found: Blame[OutsideWait]) -> Blame[OutsideWait]:
    """Where most ranks wait at one place by hand, on the store or by polling, those who are elsewhere may have gone by
    it: then they are the ones to blame."""
    waiting = tuple(sorted({w.waiter for w in case.graph.waits} - set(found.culprits)))
    stand = {case.activities[r].where for r in found.culprits}
    by_hand = all(case.activities[r].kind in (ActivityKind.SLEEPING, ActivityKind.STORE_WAIT) for r in found.culprits)
    if not by_hand or len(stand) > 1 or len(found.culprits) <= len(waiting) or not waiting:
        return found
    sure = f"{told_ranks(waiting)} may have gone by what the others wait for"
    return replace(found, alternatives=(waiting,), confidence=Confidence.POSSIBLE, sure=sure)


def _ended_in_order(case: Case, ranks: tuple[int, ...]) -> bool:
    """Did they end with status 0, and does no collective that they have not issued, nor the store, wait for them?
    Whatever else others wait for may be one call too many."""
    ends = [case.ranks[r].exit for r in ranks]
    needed = any(
        case.activities[w.waiter].kind == ActivityKind.STORE_WAIT
        or (w.source == "journal" and case.activities[w.waiter].kind == ActivityKind.IN_COLLECTIVE)
        for w in case.graph.waits
        if not set(w.on).isdisjoint(ranks)
    )
    return not needed and all(end is not None and end.status == 0 and not end.exception for end in ends)


def _how_many_wait(case: Case) -> str:
    waiting = len(case.graph.waits)
    return f"{waiting} ranks wait for it" if waiting > 1 else "one rank waits for it"


def _looked_at(case: Case, ranks: tuple[int, ...]) -> bool:
    """Does a debugger hold each of them? Whoever attached it may let them go on."""
    processes = [case.ranks[r].process for r in ranks]
    return all(p is not None and p.last is not None and p.last.tracer_pid for p in processes)


def _never_seen(case: Case, ranks: tuple[int, ...]) -> bool:
    """Is it only inferred of one of them that it is gone?"""
    return any(case.ranks[r].process is None for r in ranks)


def _how_sure_of_the_end(case: Case, ranks: tuple[int, ...]) -> Confidence:
    inferred = _never_seen(case, ranks) and not all_on_this_host(case.job)
    return Confidence.LIKELY if inferred else Confidence.CERTAIN


def _seen_states(case: Case, ranks: tuple[int, ...]) -> str:
    if _never_seen(case, ranks):
        told = "the launcher starts every rank on this host" if all_on_this_host(case.job) else "the ranks meet here"
        return f"{told}, and no process carries {told_ranks(ranks)}"
    kinds = sorted({case.activities[r].kind for r in ranks})
    return f"seen in the process table ({', '.join(kinds)})"


# --- divergence ----------------------------------------------------------------------------------------------------


def _disagreement(case: Case) -> Blame[Disagreement] | None:
    """All are in the same call with different arguments."""
    communicating = any(a.kind == ActivityKind.IN_COLLECTIVE for a in case.activities.values())
    found = disagreement(case) if communicating or case.graph.stuck else None
    return blame_of(found, len(found.history.blind)) if found is not None else None


def blame_of(found: Disagreement, unknown: int = 0) -> Blame[Disagreement]:
    """The ranks that stand alone with their arguments; both sides where none is in the minority, or would not be if
    ``unknown`` members of the group did as they do."""
    sides = found.sides
    alone = len(sides) > 1 and len(sides[0]) + unknown < len(sides[-1])
    odd = tuple(sorted(r for side in sides[:-1] for r in side)) if alone else sides[0]
    return Blame(
        found,
        odd,
        () if alone else tuple(sides[1:]),
        proved=True,
        confidence=Confidence.CERTAIN
        if alone and found.what == "arguments" and not unknown
        else Confidence.LIKELY
        if alone
        else Confidence.POSSIBLE,
        sure=f"the same call of {'' if unknown else 'all '}{len(found.tokens)} ranks seen"
        + (f", that of {unknown} not" if unknown else ""),
    )


def _standing(case: Case) -> Blame[Diverged] | None:
    """Where no history tells, compare the calls that the ranks stand in, those of the store among them."""
    for history in from_stacks(case.activities, (ActivityKind.IN_COLLECTIVE, ActivityKind.STORE_WAIT)):
        candidates = repairs(history)
        if candidates and any(case.activities[r].kind == ActivityKind.STORE_WAIT for r in history.tokens):
            return _decide(case, candidates, proved=True)
    if case.programs or any(case.activities[r].kind != ActivityKind.IN_COLLECTIVE for r in case.graph.stuck):
        return None
    # All wait, and everything else that could explain it has been looked at: what stands elsewhere does not match.
    candidates = [found for history in case.histories for found in repairs(apart(history))]
    return _decide(case, candidates, proved=True) if candidates else None


def _across_groups(case: Case) -> Blame[Diverged] | None:
    """Each group by itself matches, and yet they wait for each other: look at the order across the groups."""
    odd = _odd_step(case)
    if odd is not None:
        return odd
    waiting = {(a.group, a.members) for r, a in case.activities.items() if r in case.graph.stuck and a.group}
    groups = [h for h in case.histories if h.key in waiting][:_MOST_GROUPS]
    pairs = [[a, b] for i, a in enumerate(groups) for b in groups[i + 1 :]]
    found: list[list[Alignment]] = []
    for chosen in ([groups] if len(groups) > 2 else []) + pairs:
        history = merged(chosen, case.programs)
        candidates = repairs(history, case.ended) if history is not None else []
        # Two groups show only the ranks that are in both: those to blame must set everybody free.
        enough = [a for a in candidates if case.graph.dissolves(a.culprits)]
        if enough:
            return _decide(case, enough, proved=True)
        found += [candidates] if candidates else []
    if not found:
        return None
    joined = _joined(case, found)
    if joined:
        return _decide(case, joined, proved=True)
    blamed = _decide(case, found[0], proved=True)
    return replace(blamed, confidence=Confidence.LIKELY) if blamed.confidence == Confidence.CERTAIN else blamed


def _odd_step(case: Case) -> Blame[Diverged] | None:
    """The only step that a rank's own order marks as odd and after whose repair everything completes, in a group in
    which some wait for one that waits elsewhere."""
    found: dict[tuple[int, ...], Alignment] = {}
    for history in case.histories if case.programs else ():
        members = case.graph.stuck & set(history.members)
        elsewhere = {r for r in members if (case.activities[r].group, case.activities[r].members) != history.key}
        for candidate in repairs(history, case.ended | elsewhere) if 0 < len(elsewhere) < len(members) else ():
            moved = settle(case, candidate)
            if moved is not candidate and completes(case.programs, case.histories, case.ended, [in_its_group(moved)]):
                found.setdefault(moved.culprits, moved)
    if len(found) != 1:
        return None
    (alignment,) = found.values()
    seen = len(alignment.history.members) - len(alignment.history.blind)
    who = told_ranks(alignment.culprits)
    sure = f"call sequences of the {seen} ranks of the group seen; {who} left a path it had taken before"
    return replace(_decide(case, [alignment], proved=True), confidence=Confidence.LIKELY, sure=sure)


def _joined(case: Case, found: list[list[Alignment]]) -> list[Alignment]:
    """Repairs of several pairs of groups that only together set everybody free; those that change fewest ranks."""
    passed: dict[tuple[int, ...], Alignment] = {}
    for parts in product(*(candidates[:_MOST_JOINED] for candidates in found[:_MOST_JOINED])):
        gaps = tuple(gap for alignment in parts for gap in alignment.gaps)
        joined = replace(parts[0], gaps=gaps, cost=sum(a.cost for a in parts))
        if joined.culprits not in passed and case.graph.dissolves(joined.culprits):
            passed[joined.culprits] = joined
    fewest = min(map(len, passed), default=0)
    return [joined for ranks, joined in passed.items() if len(ranks) == fewest]


def _divergence(case: Case) -> Blame[Diverged] | None:
    several = [history for history in case.histories if len(history.members) > 1]
    every = [r for r in (all_repairs(h, case.ended & set(h.members)) for h in several) if r]
    if not every:
        return None
    # Only a repair after which everything completes explains the whole, even if it is not the cheapest in its group;
    # where none does alone, the group that parted first explains the others.
    found = [cheapest(alignments) for alignments in every]
    enough: list[Alignment] = []
    for offered in (found, every) if case.programs else ():
        enough = enough or completing(case.programs, case.histories, case.ended, offered)
    candidates = enough or min(found, key=lambda group: min(a.when for a in group))
    history = candidates[0].history
    stuck = bool(case.graph.stuck & set(history.members)) or met_unlike(history)
    blamed = _decide(case, candidates, proved=stuck)
    unproven = blamed.confidence == Confidence.CERTAIN and not enough
    return replace(blamed, confidence=Confidence.LIKELY) if unproven else blamed


def _decide(case: Case, candidates: list[Alignment], *, proved: bool) -> Blame[Diverged]:
    """Choose among equally cheap repairs of one history."""
    history = candidates[0].history
    chosen, tie, partings = choose(case, candidates)
    chosen = _original_calls(case, retell(case, chosen, partings))
    late, partings = made_later(case, chosen, partings)
    others = tuple(a.culprits for a in candidates if a.culprits != chosen.culprits)
    if history.inferred and (
        elsewhere := elsewhere_standing(history, chosen.culprits) or beside_unnamed(history, chosen.culprits)
    ):
        tie, others = "unbroken", tuple(dict.fromkeys((*others, *elsewhere)))
    elif history.inferred and not tie and (perhaps := behind_rooted(history, chosen.culprits)):
        tie, others = "unbroken", tuple(dict.fromkeys((*others, *perhaps)))
    elif history.inferred and not partings and _left_behind(case, chosen):
        tie, others = "unbroken", (*others, tuple(r for r in history.members if r not in chosen.culprits))
    without = {*chosen.culprits, *history.blind}
    rest = tuple(r for r in history.members if r not in without)
    if not tie and rest and _may_be_the_many(case, history, chosen, rest) and not any(p.rank_like for p in partings):
        tie, others = "unbroken", (rest,)
    confidence, sure = _how_sure(case, history, chosen.culprits, tie, proved)
    if confidence == Confidence.CERTAIN and (own := crossed_before(chosen)) is not None:
        confidence = Confidence.LIKELY
        sure += f"; rank {own.rank} may have parted from them earlier, at call #{own.sequence}"
    return Blame(
        Diverged(chosen, tuple(partings), late),
        chosen.culprits,
        others if tie == "unbroken" else (),
        proved,
        confidence,
        sure,
    )


def _may_be_the_many(case: Case, history: GroupHistory, chosen: Alignment, rest: tuple[int, ...]) -> bool:
    """Would the culprits not be the fewer if the members that were not seen did as they do?"""
    hidden = case.hidden & set(history.members)
    return bool(hidden) and len(chosen.culprits) + len(hidden) >= len(rest)


def _left_behind(case: Case, alignment: Alignment) -> bool:
    """Do the others stand behind the call that the culprits are said to make alone? Then they have come by it."""
    gap = alignment.first
    if gap is None or gap.kind != "delete" or gap.mine is None or gap.theirs is None:
        return False
    return is_behind(case.sources, gap.theirs.stack, gap.mine.stack) == "behind"


def _original_calls(case: Case, alignment: Alignment) -> Alignment:
    """The calls as they were issued: in a merged history they carry the merged order's numbers."""

    if alignment.history.inferred:
        return alignment

    def original(token: Token) -> Token:
        program = case.programs.get(token.rank)
        return program.token(token.order) if program and token.op != END and token.order >= 0 else token

    gaps = tuple(
        replace(
            gap,
            token=original(gap.token),
            mine=original(gap.mine) if gap.mine else None,
            theirs=original(gap.theirs) if gap.theirs else None,
        )
        for gap in alignment.gaps
    )
    return replace(alignment, gaps=gaps)


def _how_sure(
    case: Case, history: GroupHistory, culprits: tuple[int, ...], tie: str, proved: bool
) -> tuple[Confidence, str]:
    seen = len(history.members) - len(history.blind)
    if history.inferred:
        known = f"stacks of {seen} ranks seen, their call sequences not"
        if tie == "unbroken":
            return Confidence.POSSIBLE, known
        return Confidence.LIKELY, f"{known}; {tie}" if tie else known
    whole = not history.blind and len(history.members) == len(case.ranks)
    whole = whole and not history.open
    who = (
        f"all {seen} ranks"
        if whole
        else f"{seen} ranks"
        if history.blind or history.open
        else f"the {seen} ranks of the group"
    )
    sure = f"call sequences of {who} seen"
    if history.blind:
        sure += f", {len(history.blind)} not"
    wrapped = history.first > 1
    if wrapped:
        sure += f" from call #{history.first} on"
    if tie == "unbroken":
        return Confidence.POSSIBLE, sure + "; nothing tells which side is at fault"
    if tie:
        return Confidence.LIKELY, f"{sure}; {tie}"
    if history.blind or not proved:
        return Confidence.LIKELY, sure
    if 3 * len(culprits) > seen:
        return Confidence.LIKELY, f"{sure}; {len(culprits)} of them went one way and {seen - len(culprits)} the other"
    return Confidence.CERTAIN, sure
