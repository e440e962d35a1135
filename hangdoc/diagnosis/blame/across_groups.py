"""Ranks that use several groups in different orders."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

from hangdoc.diagnosis.blame.crossed_dimensions import CrossedDimensions, crossed_dimensions
from hangdoc.diagnosis.blame.divergences import at_most_likely, decide
from hangdoc.diagnosis.blame.tie_break import decided_by_culprits
from hangdoc.diagnosis.bounds import TRIED
from hangdoc.diagnosis.calls.alignment import Alignment, repairs
from hangdoc.diagnosis.calls.history import GroupHistory, merged
from hangdoc.diagnosis.condition.divergence_point import settle
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Diverged
from hangdoc.model.kinds import Confidence
from hangdoc.model.wording import ranks_text

_Threads = dict[int, frozenset[int]]
"""Rank → the threads from which it called on a group."""


def order_across_groups(case: Case) -> Blame[Diverged] | None:
    """Each group by itself matches, and yet ranks wait for each other: repair the order across the groups.

    Example: rank 0 calls on group 1, then on group 2, rank 1 the other way round → one of the two has to move a call.
    """
    odd = _odd_step(case)
    if odd is not None:
        return odd
    found: list[list[Alignment]] = []
    for together in _groups_compared(case):
        history = merged(together, case.programs)
        candidates = repairs(history, case.ended) if history is not None else []
        # Two groups show only the ranks that are in both: without the culprits' waits, no rank may be stuck.
        enough = [a for a in candidates if case.graph.dissolves(a.culprits)]
        if enough:
            return decide(case, enough, proved=True)
        found += [candidates] if candidates else []
    crossed = crossed_dimensions(case)
    if crossed:
        return _crossed(case, crossed)
    if not found:
        return None
    return at_most_likely(decide(case, found[0], proved=True))


def _crossed(case: Case, candidates: list[Alignment]) -> Blame[Diverged]:
    """The blame of the ranks that use two dimensions of a mesh in the other order."""
    blamed = at_most_likely(decide(case, candidates, proved=True))
    chosen, points = next(each for each in candidates if each.culprits == blamed.culprits), blamed.found.branch_points
    if points and points[0].guarded == 0 and not points[0].both_arms:
        chosen = blamed.found.alignment  # a condition leads the culprits to their call: that one is too many
    found = CrossedDimensions(chosen, points)
    who, ranks = ranks_text(blamed.culprits), len(chosen.history.members)
    sure = f"call sequences of {ranks} ranks seen; {who} came to the two groups in another order than the rest"
    unknown = "; the data does not show which order is right" if blamed.confidence == Confidence.POSSIBLE else ""
    return replace(blamed, found=found, sure=sure + unknown)


def _groups_compared(case: Case) -> list[list[GroupHistory]]:
    """The groups that stuck ranks wait in, as they are compared: all at once if there are more than two, then each
    pair.

    Example: ranks wait in groups 1, 2 and 3 → [1, 2, 3], [1, 2], [1, 3], [2, 3].
    """
    waited_in = {(a.group, a.members) for r, a in case.activities.items() if r in case.graph.stuck and a.group}
    groups = [h for h in case.histories if h.key in waited_in][:TRIED]
    pairs = [list(pair) for pair in combinations(groups, 2)]
    threads = {history.key: _threads(history) for history in groups}
    compared = [groups, *pairs] if len(groups) > 2 else pairs
    return [each for each in compared if not _by_several_threads([threads[history.key] for history in each])]


def _by_several_threads(groups: list[_Threads]) -> bool:
    """True if some rank calls on the groups from threads of which none calls on two of them: threads take no turns, so
    that in which order their calls come says nothing. ``groups``: the threads that call on each.

    Example: the main thread calls on the default group, and an executor's, which saves, on its own → True.
    """
    smallest = min(groups, key=len, default={})
    for rank in smallest:
        own = [each.get(rank, frozenset()) for each in groups]
        if all(own) and not any(one & other for one, other in combinations(own, 2)):
            return True
    return False


def _threads(history: GroupHistory) -> _Threads:
    return {rank: frozenset(t.thread_id for t in tokens if t.thread_id) for rank, tokens in history.tokens.items()}


def _odd_step(case: Case) -> Blame[Diverged] | None:
    """The one call at which a rank left its own usual order, if its repair makes everything complete.

    Only groups are searched in which some members wait for one that waits in another group. Example: rank 1 always
    called on group a and then on b, and once on b first → that call of rank 1.
    """
    found: dict[tuple[int, ...], Alignment] = {}
    for history in case.histories if case.programs else ():
        members = case.graph.stuck & set(history.members)
        elsewhere = {r for r in members if (case.activities[r].group, case.activities[r].members) != history.key}
        for candidate in repairs(history, case.ended | elsewhere) if 0 < len(elsewhere) < len(members) else ():
            moved = settle(case, candidate)
            if moved is not candidate and moved.culprits in case.smallest_repairs:
                found.setdefault(moved.culprits, moved)
    if len(found) != 1:
        return None
    (alignment,) = found.values()
    seen = len(alignment.history.members) - len(alignment.history.blind)
    who = ranks_text(alignment.culprits)
    sure = f"call sequences of the {seen} ranks of the group seen; {who} left a path it had taken before"
    blamed = decide(case, [alignment], proved=True)
    anew = decided_by_culprits(case, blamed.found.alignment, list(blamed.found.branch_points))
    confidence = Confidence.CERTAIN if anew and not alignment.history.blind else Confidence.LIKELY
    return replace(blamed, confidence=confidence, sure=f"{sure}; {anew}" if anew else sure)
