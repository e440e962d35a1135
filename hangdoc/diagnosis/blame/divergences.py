"""The repair of the ranks' calls that explains the hang: which ranks it changes, and how sure that is."""

from __future__ import annotations

from dataclasses import replace

from hangdoc.diagnosis.blame.arguments import Disagreement, disagreement
from hangdoc.diagnosis.blame.missing_or_extra import as_missing_or_extra, made_later
from hangdoc.diagnosis.blame.precedent import blamed_by_precedent
from hangdoc.diagnosis.blame.tie_break import choose, decided_by_culprits, has_pending
from hangdoc.diagnosis.bounds import OFTEN
from hangdoc.diagnosis.calls.alignment import Alignment, Gap, all_repairs, cheapest, crossed_before, repairs, shifted
from hangdoc.diagnosis.calls.history import END, GroupHistory, Token
from hangdoc.diagnosis.calls.stack_calls import (
    apart,
    from_stacks,
    is_between_librarys_calls,
    is_given_group,
    others_if_of_other_groups,
    others_if_rooted,
    others_if_unnamed,
    ranks_at_other_sites,
)
from hangdoc.diagnosis.calls.unlike_calls import unlike_calls_paired
from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.condition.choice import branch_points_of
from hangdoc.diagnosis.condition.rounds_ahead import is_further_on
from hangdoc.diagnosis.condition.stack_comparison import is_ahead, is_past
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Diverged
from hangdoc.diagnosis.frames.landmarks import below_user, is_distributed
from hangdoc.model.kinds import ActivityKind, Confidence
from hangdoc.model.operations import operation


def differing_call(case: Case) -> Blame[Disagreement] | None:
    """The blame of one call that all ranks make with different arguments; None where there is none."""
    communicating = any(a.kind == ActivityKind.IN_COLLECTIVE for a in case.activities.values())
    found = disagreement(case) if communicating or case.graph.stuck else None
    return blamed_by_precedent(case, found) if found is not None else None


def compare_places(case: Case) -> Blame[Diverged] | None:
    """The repair of the calls that the ranks are in now, those included that no history shows: waits on the store, and
    a library's own collectives. Used without histories as well.

    Example: ranks 0 and 1 are in all_reduce at train.py:9, rank 2 in barrier at train.py:14 → barrier is extra on 2.
    """
    for history in from_stacks(case.activities, (ActivityKind.IN_COLLECTIVE, ActivityKind.STORE_WAIT)):
        candidates = repairs(history)
        if candidates and any(_leaves_no_history(case, rank) for rank in history.tokens):
            return decide(case, candidates, proved=True)
    if case.programs or any(case.activities[r].kind != ActivityKind.IN_COLLECTIVE for r in case.graph.stuck):
        return None
    # All wait, and nothing else explains it: calls at different lines do not match.
    candidates = [found for history in case.histories for found in repairs(apart(history))]
    return decide(case, candidates, proved=True) if candidates else None


def _leaves_no_history(case: Case, rank: int) -> bool:
    """True if the rank is in a wait that torch's recorder does not know: on the store, in a call that has no number, or
    through a library that does not communicate by torch.distributed."""
    activity = case.activities[rank]
    if activity.kind != ActivityKind.IN_COLLECTIVE:
        return activity.kind == ActivityKind.STORE_WAIT
    if not operation(activity.operation).numbered:
        return True
    below = below_user(activity.stack)
    return bool(activity.landmark) and bool(below) and not any(map(is_distributed, below))


def at_most_likely(blamed: Blame[Diverged]) -> Blame[Diverged]:
    """``blamed``, without certainty: its repair does not make everything complete, as far as is known."""
    return replace(blamed, confidence=Confidence.LIKELY) if blamed.confidence == Confidence.CERTAIN else blamed


def best_repair(case: Case) -> Blame[Diverged] | None:
    """The smallest repair of the group that diverged first; None where every group's calls match. It is certain only
    if all channels together need no other.

    Example: rank 2 made an extra barrier on the default group, and all later calls of two other groups are late → the
    repair without that barrier.
    """
    several = [history for history in case.histories if len(history.members) > 1]
    by_group = [found for h in several if (found := all_repairs(h, case.ended & set(h.members)))]
    if not by_group:
        return _shifted_for_good(case)
    # The group that diverged first explains the others.
    candidates = min(map(cheapest, by_group), key=lambda group: min(each.when for each in group))
    history = candidates[0].history
    stuck = bool(case.graph.stuck & set(history.members)) or unlike_calls_paired(history)
    blamed = decide(case, candidates, proved=stuck)
    known = case.smallest_repairs or frozenset([blamed.culprits])  # none: too much to try, or nothing that they tell
    return blamed if blamed.culprits in known and _explains_devices(case) else at_most_likely(blamed)


def _explains_devices(case: Case) -> bool:
    """False if no repair of all channels is known of devices, which come to their calls in the order of their issue:
    then more may be missing than a group's repair says."""
    return not case.streams or bool(case.smallest_repairs)


def _shifted_for_good(case: Case) -> Blame[Diverged] | None:
    """The blame of an extra call that was paired with the others' next one, as was every call since, where the ranks
    that are waited for only sleep: what they sleep for is no fault. None where there is none.

    The call is under a condition, no other rank ever makes it, and what follows it are the others' calls from there on.
    Example: `if main: barrier()`, and then a loop of barriers, whose first one met the others' second.
    """
    if not case.graph.roots or any(case.activities[r].kind != ActivityKind.SLEEPING for r in case.graph.roots):
        return None
    for history in case.histories:
        alignment = shifted(history) if case.programs and not history.blind and history.first == 1 else None
        blamed = decide(case, [alignment], proved=True) if alignment is not None else None
        if blamed is not None and blamed.found.branch_points and blamed.found.branch_points[0].guarded == 0:
            return at_most_likely(blamed)
    return None


def decide(case: Case, candidates: list[Alignment], *, proved: bool) -> Blame[Diverged]:
    """The blame by one of several equally cheap repairs of one history: ``choose`` picks it.

    ``proved``: the job can no longer move by itself. Example: either rank 0 made an extra call or rank 1 left it out,
    and nothing breaks the tie → rank 0, with rank 1 as the alternative.
    """
    history = candidates[0].history
    chosen, tie, points = choose(case, candidates)
    ahead = _is_ahead(case, chosen)
    chosen = _original_calls(case, as_missing_or_extra(case, chosen, points))
    points = branch_points_of(case, chosen) if ahead else points
    late, points = made_later(case, chosen, points)
    others = tuple(a.culprits for a in candidates if a.culprits != chosen.culprits)
    if history.inferred:
        further = _alternatives_of_stacks(case, chosen, tied=bool(tie), points=points, ahead=ahead)
        tie, others = ("unbroken" if further else tie), tuple(dict.fromkeys((*others, *further)))
    without = {*chosen.culprits, *history.blind}
    rest = tuple(r for r in history.members if r not in without)
    if not tie and rest and _may_be_the_many(case, history, chosen, rest) and not any(p.rank_like for p in points):
        tie, others = "unbroken", (rest,)
    anew = decided_by_culprits(case, chosen, points) if tie and late is None else ""
    confidence, sure = _how_sure(case, history, chosen.culprits, tie, proved, anew)
    if confidence == Confidence.CERTAIN and (own := crossed_before(chosen)) is not None:
        confidence = Confidence.LIKELY
        sure += f"; rank {own.rank} may have diverged earlier, at call #{own.sequence}"
    alternatives = others if tie == "unbroken" else ()
    return Blame(Diverged(chosen, tuple(points), late), chosen.culprits, alternatives, proved, confidence, sure)


def _alternatives_of_stacks(
    case: Case, chosen: Alignment, *, tied: bool, points: list[BranchPoint], ahead: bool
) -> list[tuple[int, ...]]:
    """Other sets of ranks that may be to blame, where stacks alone show one call of each rank.

    ``tied``: other repairs are as good; ``points``: the conditions at which the culprits can have diverged; ``ahead``:
    the culprits' call comes after where all others are, so that none of these can have made it.
    """
    history, culprits = chosen.history, chosen.culprits
    found = ranks_at_other_sites(history, culprits) or others_if_unnamed(history, culprits)
    theirs_alone = bool(points) and points[0].rank_like and points[0].guarded == 0
    come = not _have_not_come_to_it(case, chosen.first)
    if not found and not tied and not theirs_alone and not ahead and come:
        found = others_if_rooted(history, culprits)
    of_all = all_groups_are_whole(case) or _are_in_whole_group(case, history)
    if not found and len(history.members) == len(case.activities) and not of_all:
        found = others_if_of_other_groups(history, culprits)
    passed = not ahead and _others_passed_it(case, chosen) and not has_pending(case, chosen)
    if not found and not points and not ahead and (passed or is_between_librarys_calls(chosen.first)):
        found = [tuple(r for r in history.members if r not in culprits)]
    return found


def _is_ahead(case: Case, chosen: Alignment) -> bool:
    """True if stacks alone are compared, and the loops' counters show the culprits further on than each of the
    others."""
    gap = chosen.first
    if not chosen.history.inferred or gap is None or gap.mine is None or len(chosen.gaps) > 1:
        return False
    mine = [t for rank in chosen.culprits for t in chosen.history.tokens.get(rank, [])]
    theirs = [t for rank, ts in chosen.history.tokens.items() if rank not in chosen.culprits for t in ts]
    return len(mine) == len(chosen.culprits) and is_further_on(case, mine, theirs)


def all_groups_are_whole(case: Case) -> bool:
    """True if the store lists no group, of those that communicate, that leaves a rank out: then whichever group a call
    was given, it is one of all ranks."""
    made = _groups_made(case)
    return bool(made) and all(set(case.activities) <= members for members in made)


def _are_in_whole_group(case: Case, history: GroupHistory) -> bool:
    """True if the calls that were given a group are at one line, and one of their ranks is in no group but those of all
    ranks: the ranks of one line call on groups of one kind."""
    given = [tokens[0] for tokens in history.tokens.values() if tokens and is_given_group(tokens[0].stack)]
    made = _groups_made(case)
    return len({token.site for token in given}) == 1 and any(
        all(set(case.activities) <= members for members in made if token.rank in members) for token in given if made
    )


def _groups_made(case: Case) -> list[set[int]]:
    """The members of each group that the store lists, without those of one rank."""
    made = case.job.store.groups if case.job.store is not None else ()
    return [set(group.members) for group in made if len(group.members) > 1]


def _may_be_the_many(case: Case, history: GroupHistory, chosen: Alignment, rest: tuple[int, ...]) -> bool:
    """True if the culprits would not be the minority if the members that were not seen did as they do."""
    hidden = case.hidden & set(history.members)
    return bool(hidden) and len(chosen.culprits) + len(hidden) >= len(rest)


def _have_not_come_to_it(case: Case, gap: Gap | None) -> bool:
    """True if the others are before the culprits' call, and nothing repeats it: they cannot have made it."""
    if gap is None or gap.mine is None or gap.theirs is None:
        return False
    return is_ahead(case.sources, gap.mine.stack, gap.theirs.stack)


def _others_passed_it(case: Case, alignment: Alignment) -> bool:
    """True if the others are past the call that seems to be the culprits' alone: then they may have made it as well."""
    gap = alignment.first
    if gap is None or gap.kind != "delete" or gap.mine is None or gap.theirs is None:
        return False
    return is_past(case.sources, gap.theirs.stack, gap.mine.stack) == "certainly"


def _original_calls(case: Case, alignment: Alignment) -> Alignment:
    """The alignment with the calls as they were issued: a merged history numbers them in its own order."""
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
    case: Case, history: GroupHistory, culprits: tuple[int, ...], tie: str, proved: bool, anew: str = ""
) -> tuple[Confidence, str]:
    """The confidence in a repair, and the reason for it. ``tie``: '', how it was broken, or 'unbroken'; ``anew``: the
    decision of the culprits that is recorded to be new to them."""
    seen = len(history.members) - len(history.blind)
    sure = _what_was_seen(case, history)
    if history.inferred:
        if tie == "unbroken":
            return Confidence.POSSIBLE, sure
        return Confidence.LIKELY, f"{sure}; {tie}" if tie else sure
    if anew and proved and not history.blind:
        return Confidence.CERTAIN, f"{sure}; {anew}"
    if tie == "unbroken":
        return Confidence.POSSIBLE, sure + "; the data fits either side"
    if tie:
        return Confidence.LIKELY, f"{sure}; {tie}"
    if history.blind or not proved:
        return Confidence.LIKELY, sure
    if OFTEN * len(culprits) > seen:
        ways = f"{len(culprits)} of them went one way and {seen - len(culprits)} the other"
        return Confidence.LIKELY, f"{sure}; {'each went another way' if seen == 2 else ways}"
    return Confidence.CERTAIN, sure


def _what_was_seen(case: Case, history: GroupHistory) -> str:
    """'call sequences of all 4 ranks seen', 'stacks of 3 ranks seen, their call sequences not'."""
    seen = len(history.members) - len(history.blind)
    if history.inferred:
        if all(rank in case.ranks and case.ranks[rank].journal is not None for rank in history.members):
            return f"stacks of {seen} ranks seen; their recorded calls alone do not show it"
        return f"stacks of {seen} ranks seen, their call sequences not"
    who = f"the {seen} ranks of the group"
    if history.blind or history.open:
        who = f"{seen} ranks"
    elif len(history.members) == len(case.ranks):
        who = "both ranks" if seen == 2 else f"all {seen} ranks"
    hidden = f", {len(history.blind)} not" if history.blind else ""
    since = f" from call #{history.first} on" if history.first > 1 else ""
    return f"call sequences of {who} seen{hidden}{since}"
