"""Devices that use two groups in opposite order: each has issued both calls, and is at the one it issued first.

Example: rank 2 issued B then A, the others A then B → rank 2 is at B, the others at A, and all have issued both.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from itertools import combinations

from hangdoc.diagnosis.bounds import TRIED
from hangdoc.diagnosis.calls.exchanged import is_exchanged, is_swapped
from hangdoc.diagnosis.calls.history import GroupKey, Token
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.model.kinds import Confidence
from hangdoc.model.wording import ranks_text


@dataclass(frozen=True, slots=True)
class CrossedGroups(Explanation):
    """The culprits are at ``mine``, the others at ``theirs``, and each side has issued the other's call as well."""

    mine: Token
    theirs: Token
    others: tuple[int, ...]


def crossed_groups(case: Case) -> Blame[CrossedGroups] | None:
    """The ranks that use two groups the other way round than the others; None where none do."""
    if not case.streams:
        return None
    fewest_first = sorted(_stuck_at(case), key=lambda each: len(each[1]))[:TRIED]
    for (mine, here), (theirs, there) in combinations(fewest_first, 2):
        if mine.group == theirs.group or not is_swapped(case.programs, mine, theirs):
            continue
        if not _is_issued_by(case, there[0], mine) or not _is_issued_by(case, here[0], theirs):
            continue
        both = set(mine.group[1]) & set(theirs.group[1])
        sides = [tuple(r for r in ranks if not both or r in both) for ranks in (here, there)]
        if all(sides):
            return _by_most_ranks(case, mine, theirs, sides)
    return _crossed_meshes(case)


def _by_most_ranks(case: Case, mine: Token, theirs: Token, sides: list[tuple[int, ...]]) -> Blame[CrossedGroups]:
    """The blame of the side whose order fewer ranks of the job share: of a mesh, every row uses the same dimensions.

    Example: rank 2 leaves the order of ranks 0 and 1, and ranks 3 to 5 have that of 0 and 1 in groups of their own.
    """
    labels = {history.key: history.label for history in case.histories}
    elsewhere = [rank for rank in case.programs if not any(rank in side for side in sides)]
    orders = ((mine, theirs), (theirs, mine))
    agree = [
        len(side) + sum(_uses_same_order(case, labels, *order, rank) for rank in elsewhere)
        for side, order in zip(sides, orders, strict=True)
    ]
    if agree[1] < agree[0]:
        mine, theirs, sides, agree = theirs, mine, sides[::-1], agree[::-1]
    return _blamed(mine, theirs, sides, alike=agree[0] == agree[1])


def _stuck_at(case: Case) -> list[tuple[Token, list[int]]]:
    """(call, the stuck ranks whose devices are at it) of each call that stuck ranks are at."""
    found: dict[tuple[object, int], tuple[Token, list[int]]] = {}
    for rank in sorted(case.graph.stuck & case.streams.fronts.keys()):
        call = case.streams.fronts[rank].call
        if call is not None:
            found.setdefault((call.group, call.sequence), (call, []))[1].append(rank)
    return list(found.values())


# One function in spite of its branches: half of them are comprehensions that sort the ranks by the order they use.
def _crossed_meshes(case: Case) -> Blame[CrossedGroups] | None:
    """The ranks of several groups of a mesh that use its two dimensions the other way round than most; None where none
    do, or where they are not the reason alone.

    No two ranks need to be in the same two groups, so the dimensions are compared by name. Example: shards (0, 1) and
    (2, 3), replicas (0, 2) and (1, 3); ranks 0 and 3 reduce over the shard first, 1 and 2 over the replicas.
    """
    labels = {history.key: history.label for history in case.histories}
    tried: set[Hashable] = set()
    for rank in sorted(case.graph.stuck & case.streams.fronts.keys()):
        mine = case.streams.fronts[rank].call
        following = _next_of_another_name(case, labels, mine) if mine is not None else None
        if mine is None or following is None:
            continue
        pair = tuple((labels.get(call.group), call.sequence) for call in (mine, following))
        if len(tried) >= TRIED:
            return None
        if pair in tried:
            continue
        tried.add(pair)
        others = [r for r in sorted(case.graph.stuck) if _uses_other_order(case, labels, mine, following, r)]
        same = [r for r in sorted(case.graph.stuck) if _uses_same_order(case, labels, mine, following, r)]
        if len(same) < len(others) and case.graph.dissolves(same):
            theirs = _numbered(case, labels, following, others[0])
            if theirs is not None:
                return _blamed(mine, theirs, [tuple(same), tuple(others)])
    return None


def _next_of_another_name(case: Case, labels: dict[GroupKey, str], call: Token) -> Token | None:
    """The next call that its rank issues in a group of another name, if it comes soon."""
    program, first = case.programs[call.rank], call.order + 1
    after = map(program.token, range(len(program.tokens))[first : first + TRIED])
    return next((t for t in after if labels.get(t.group) != labels.get(call.group)), None)


def _numbered(case: Case, labels: dict[GroupKey, str], call: Token, rank: int) -> Token | None:
    """The rank's call of that kind and number, in its own group of that name."""
    program, label = case.programs[rank], labels.get(call.group)
    places = [
        place
        for name, track in program.recording.by_group.items()
        if labels.get(program.key(name)) == label and (place := track.place_of(call.sequence)) is not None
    ]
    alike = (t for t in map(program.token, sorted(places)) if (t.op, t.sizes) == (call.op, call.sizes))
    return next(alike, None)


def _uses_same_order(case: Case, labels: dict[GroupKey, str], first: Token, second: Token, rank: int) -> bool:
    """True if the rank issues the two calls in that order."""
    if rank not in case.programs:
        return False
    one, two = (_numbered(case, labels, call, rank) for call in (first, second))
    return one is not None and two is not None and one.order < two.order


def _uses_other_order(case: Case, labels: dict[GroupKey, str], first: Token, second: Token, rank: int) -> bool:
    """True if the rank issues the two calls the other way round, and what follows agrees."""
    if not _uses_same_order(case, labels, second, first, rank):
        return False
    theirs = _numbered(case, labels, second, rank)
    return theirs is not None and is_exchanged(
        *(
            [(labels.get(t.group), t.op, t.sizes) for t in _of_both(case, labels, call, (first, second))]
            for call in (first, theirs)
        )
    )


def _of_both(case: Case, labels: dict[GroupKey, str], call: Token, both: tuple[Token, Token]) -> list[Token]:
    """What the rank issues from that call on in its groups of the two names."""
    known = {labels.get(token.group) for token in both}
    return [t for t in case.programs[call.rank].tokens[call.order :] if labels.get(t.group) in known]


def _is_issued_by(case: Case, rank: int, call: Token) -> bool:
    """True if the rank has issued that very call under its number: then the group by itself matches."""
    history = next((h for h in case.histories if h.key == call.group), None)
    own = history.at(rank, call.sequence) if history is not None else None
    return own is not None and (own.op, own.sizes, own.site) == (call.op, call.sizes, call.site)


def _blamed(mine: Token, theirs: Token, sides: list[tuple[int, ...]], *, alike: bool = False) -> Blame[CrossedGroups]:
    culprits, others = sides
    found = CrossedGroups(mine, theirs, others)
    sure = f"{ranks_text(culprits)} issued the two calls in the other order, and what follows agrees"
    if alike:
        return Blame(
            found, culprits, (others,), proved=True, sure=f"{sure}; the data does not show which order is right"
        )
    return Blame(found, culprits, proved=True, confidence=Confidence.LIKELY, sure=sure)
