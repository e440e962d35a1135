"""Minimum repair: the fewest insertions and deletions after which the ranks' sequences can match.

Ranks with equal behavior are folded first, so the cost grows with the number of *different* behaviors. Each
behavior is then aligned with a consensus, which starts from one of them and is extended by the others' further calls.
The start whose repair changes the fewest calls, counted over ranks, wins. Starts that change equally many are
alternatives: ``blame.tie_break`` chooses among them.

The end of a sequence costs nothing: a rank that has not issued a call yet may still do so.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hangdoc.diagnosis.bounds import COMPARED, TRIED
from hangdoc.diagnosis.calls.history import END, GroupHistory, Token
from hangdoc.diagnosis.calls.pairing import GAP, Behavior, Pairing
from hangdoc.diagnosis.frames.stacks import Site

_MOST_PLACES = 100_000
"""Of one search; chosen by hand: behaviors that need more have little in common."""


@dataclass(frozen=True, slots=True)
class Gap:
    """One repair. 'delete': ``token`` of these ranks has no partner; 'insert': ``token`` of the others is missing
    here.

    ``mine`` and ``theirs`` are what each side issued at this point (None: nothing yet).
    """

    kind: str
    ranks: tuple[int, ...]
    token: Token
    mine: Token | None
    theirs: Token | None

    @property
    def past(self) -> bool:
        """True if both sides have gone on since they diverged."""
        return not any(token is not None and token.pending for token in (self.mine, self.theirs))


@dataclass(frozen=True, slots=True)
class Alignment:
    """The repair of one group from one start: how many calls it changes, over all ranks, and which."""

    history: GroupHistory
    cost: int
    gaps: tuple[Gap, ...]
    consensus: tuple[Token, ...]

    @property
    def culprits(self) -> tuple[int, ...]:
        """The ranks that the repair changes."""
        return tuple(sorted({rank for gap in self.gaps for rank in gap.ranks}))

    @property
    def when(self) -> int:
        """Time of the first repair (ns), by which groups are compared: the one that diverged first explains more."""
        first = self.first
        times = [t.created_ns for t in (first.mine, first.theirs, first.token) if t and t.created_ns] if first else []
        return min(times, default=0)

    @property
    def first(self) -> Gap | None:
        """The earliest repair: the divergence."""
        return min(self.gaps, key=lambda g: (g.token.created_ns or 0, g.token.sequence)) if self.gaps else None


def crossed_before(alignment: Alignment) -> Token | None:
    """The culprits' first call before the repair at which the sides may have diverged already; None if there is none.

    Its own site is unknown to the others, while the others' call of the same number is from a site that the culprits
    also call from. Example: culprits [X, A, …], others [A, A, …] → X.
    """
    gap, history = alignment.first, alignment.history
    if gap is None or gap.theirs is None or history.inferred:
        return None
    mine, theirs = (history.tokens.get(rank, []) for rank in (gap.ranks[0], gap.theirs.rank))
    known = {t.site for t in mine}, {t.site for t in theirs}
    numbered = {t.sequence: t for t in theirs}
    for token in mine:
        other = numbered.get(token.sequence)
        if token.sequence >= gap.token.sequence or other is None:
            continue
        if token.site not in known[1] and other.site in known[0]:
            return token
    return None


def shifted(history: GroupHistory) -> Alignment | None:
    """The repair of one extra call that paired with the others' next one, and so did all that follow; None where there
    is none.

    Unlike sites alone are no fault, but here the others never call from the extra one's site, and each later call is
    from the site of the others' call before. Example: [A, X, B, C] | [A, B, C, D] → X is extra.
    """
    lists = list(filter(None, history.lists(history.members)))
    for mine in lists if len(lists) <= COMPARED else ():
        others = [calls for calls in lists if not _same_sites(calls, mine)]
        theirs = max(others, key=len, default=[])
        at = next((i for i, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a.site != b.site), None)
        if at is None or at + 1 >= len(mine) or mine[at].op != theirs[at].op:
            continue
        if any(t.site == mine[at].site for calls in others for t in calls):
            continue
        if all(_same_sites(mine[at + 1 :], calls[at:]) for calls in others):
            alike = (r for r in history.members if _same_sites(history.tokens.get(r, mine), mine))
            gap = Gap("delete", tuple(sorted(alike)), mine[at], mine[at], theirs[at])
            return Alignment(history, len(gap.ranks), (gap,), tuple(theirs))
    return None


def _same_sites(some: Sequence[Token], others: Sequence[Token]) -> bool:
    """True if one of the two begins with the other, by operations and sites."""
    return all((a.op, a.site) == (b.op, b.site) for a, b in zip(some, others, strict=False))


def fold(history: GroupHistory, ended: frozenset[int]) -> list[Behavior]:
    """Ranks with equal behavior together, the most common first, longer ones before shorter.

    Example: ranks 0 and 2 of [A, B] and rank 1 of [A] → (0, 2) with [A, B], (1,) with [A].
    """
    blind = frozenset(history.blind)
    # Ranks of equal programs share one list of tokens: it is read once.
    lists: dict[tuple[int, bool], list[int]] = {}
    for rank in history.members:
        if rank not in blind:
            lists.setdefault((id(history.tokens.get(rank)), rank in ended), []).append(rank)
    kinds: dict[object, int] = {}
    sites: dict[Site, int] = {}
    folded: dict[tuple[object, ...], list[int]] = {}
    whole: dict[tuple[object, ...], Behavior] = {}
    for (_, has_ended), ranks in lists.items():
        # Calls older than the others' oldest remembered call cannot be compared.
        calls = [t for t in history.tokens.get(ranks[0], []) if t.sequence >= history.first]
        tokens = (*calls, _end(history, ranks[0], calls)) if has_ended else tuple(calls)
        # Calls of one line share their site, which takes long to hash.
        own = {id(t.site): t.site for t in tokens}
        numbers = {which: sites.setdefault(site, len(sites)) for which, site in own.items()}
        at = tuple(numbers[id(t.site)] for t in tokens)
        parts = ((t.op, site, t.sizes, t.dtypes) for t, site in zip(tokens, at, strict=True))
        what = tuple(kinds.setdefault(part, len(kinds)) for part in parts)
        print_ = (what, tuple((t.pending, t.sequence) for t in tokens))
        folded.setdefault(print_, []).extend(ranks)
        whole.setdefault(print_, Behavior((), tokens, what, at))
    behaviors = [replace(whole[key], ranks=tuple(sorted(ranks))) for key, ranks in folded.items()]
    return sorted(behaviors, key=lambda b: (-len(b.ranks), -len(b.tokens), b.ranks))


def _end(history: GroupHistory, rank: int, calls: Sequence[Token]) -> Token:
    """The end of an ended rank's program, as a call after its last one."""
    last = calls[-1] if calls else None
    return Token(
        rank=rank,
        group=history.key,
        sequence=(last.sequence if last else 0) + 1,
        op=END,
        site=(),
        sizes=None,
        dtypes=(),
        pending=False,
        order=(last.order if last else 0) + 1,
        created_ns=last.created_ns + 1 if last else 0,
        stack=(),
    )


def repairs(history: GroupHistory, ended: frozenset[int] = frozenset()) -> list[Alignment]:
    """The cheapest alignments, one per different set of culprits; empty when nothing needs repair.

    ``ended`` are ranks that will never issue another call. Example: [A, B] | [A, B] | [A, X, B] →
    one alignment, whose gap deletes X of rank 2.
    """
    return cheapest(all_repairs(history, ended))


def cheapest(alignments: list[Alignment]) -> list[Alignment]:
    """Those of the least cost, from a list in order of cost."""
    return [a for a in alignments if a.cost == alignments[0].cost]


def all_repairs(history: GroupHistory, ended: frozenset[int] = frozenset()) -> list[Alignment]:
    """As ``repairs``, the dearer ones included, in order of cost."""
    # Where all ranks share one list of calls, none of them is looked at.
    if len({(id(history.tokens.get(rank)), rank in ended) for rank in history.members}) < 2:
        return []
    behaviors = fold(history, ended)
    if len(behaviors) < 2:
        return []
    found = [_from_start(history, behaviors, start) for start in behaviors[:TRIED]]
    found.sort(key=lambda a: a.cost)
    if not found[0].gaps:
        return []
    unique: dict[tuple[int, ...], Alignment] = {}
    for alignment in found:
        unique.setdefault(alignment.culprits, alignment)
    return list(unique.values())


def _from_start(history: GroupHistory, behaviors: list[Behavior], start: Behavior) -> Alignment:
    """The repair that takes ``start`` for correct and changes all other behaviors."""
    consensus = Behavior((), start.tokens, start.kinds, start.sites)
    cost = 0
    gaps: list[Gap] = []
    for behavior in [b for b in behaviors if b is not start]:
        steps, tail = align(consensus, behavior)
        # What counts is how many calls change; differing sites only steer the path.
        cost += len(steps) * len(behavior.ranks)
        gaps += [_gap(step, consensus, behavior) for step in _with_replaced(steps)]
        if tail < len(behavior.tokens):
            consensus = Behavior(
                (),
                consensus.tokens + behavior.tokens[tail:],
                consensus.kinds + behavior.kinds[tail:],
                consensus.sites + behavior.sites[tail:],
            )
    return Alignment(history, cost, tuple(gaps), consensus.tokens)


def _with_replaced(steps: list[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    """The steps; of a call that replaces another, both steps name both calls.

    Example: left A B D, right A C D → ('delete', 1, 1) and ('insert', 1, 2), which becomes ('insert', 1, 1).
    """
    found: list[tuple[str, int, int]] = []
    for kind, i, j in steps:
        replaces = kind == "insert" and found[-1:] == [("delete", i, j - 1)]
        found.append((kind, i, j - 1 if replaces else j))
    return found


def _gap(step: tuple[str, int, int], consensus: Behavior, behavior: Behavior) -> Gap:
    """A step of ``align`` as a gap of the behavior's ranks."""
    kind, i, j = step
    theirs = consensus.tokens[i] if i < len(consensus.tokens) else None
    mine = behavior.tokens[j] if j < len(behavior.tokens) else None
    token = mine if kind == "delete" else theirs
    if token is None:
        raise AssertionError("a repair without a call")
    return Gap(kind, behavior.ranks, token, mine, theirs)


def align(left: Behavior, right: Behavior) -> tuple[list[tuple[str, int, int]], int]:
    """Align two sequences whose ends are free.

    Returns the steps ('insert', i, j: the left one's call i has no partner; 'delete', i, j: the right one's call j
    has none) and where the right one's free end begins. Gaps are as late as possible: the ranks agreed until then.

    Example: left A B C, right A C, where B and C are other operations → [('insert', 1, 1)], 2.
    """
    first = _common(left.kinds, right.kinds)
    if first in (len(left.kinds), len(right.kinds)):
        return [], first
    search = _Search(left, right, first)
    end = _best_end(search.ends(), left, right)
    return _steps(search.came_from, end), end[1]


class _Search:
    """A best-first search for the cheapest way through both sequences.

    A place is (calls of the left one passed, calls of the right one passed). Calls that match at no cost are passed at
    once, so the work grows with the repair and not with the length of the sequences.
    """

    def __init__(self, left: Behavior, right: Behavior, first: int) -> None:
        """``first``: how many calls from the start are the same on both sides."""
        self.came_from: dict[tuple[int, int], tuple[int, int]] = {}
        """Place → the place before it on the cheapest way."""
        self._left, self._right = left.kinds, right.kinds
        self._price = Pairing(left, right).cost
        self._cheapest: dict[tuple[int, int], int] = {(first, first): 0}
        # (cost, minus how far on, place): among equally cheap places the one furthest on goes first.
        self._queue: list[tuple[int, int, int, int]] = [(0, 0, first, first)]

    def ends(self) -> list[tuple[int, int]]:
        """All places of the least cost at which one of the two sequences has been passed as a whole."""
        found: list[tuple[int, int]] = []
        limit: int | None = None
        while self._queue:
            cost, _, i, j = heapq.heappop(self._queue)
            if limit is not None and cost > limit:
                break
            if len(self.came_from) > _MOST_PLACES and not found:
                return [max(self.came_from, key=sum)]  # little in common: the rest is not compared
            if cost > self._cheapest[i, j]:
                continue
            place = self._pass_matching(i, j)
            if place != (i, j):
                # A place that another path reached at this cost has been searched already.
                if self._cheapest.get(place, cost + 1) <= cost:
                    continue
                self._cheapest[place] = cost
                self.came_from[place] = (i, j)
            if place[0] == len(self._left) or place[1] == len(self._right):
                found.append(place)
                limit = cost
            else:
                self._go_on_from(place, cost)
        return found

    def _pass_matching(self, i: int, j: int) -> tuple[int, int]:
        """The place after all calls from (i, j) on that match at no cost."""
        rows, columns = len(self._left), len(self._right)
        while i < rows and j < columns and (self._left[i] == self._right[j] or self._price(i, j) == 0):
            i, j = i + 1, j + 1
        return i, j

    def _go_on_from(self, place: tuple[int, int], cost: int) -> None:
        """Queue the three places after ``place`` that are cheaper this way: a pair, a call missing, one too many."""
        i, j = place
        for after, price in (((i + 1, j + 1), self._price(i, j)), ((i + 1, j), GAP), ((i, j + 1), GAP)):
            if cost + price < self._cheapest.get(after, cost + price + 1):
                self._cheapest[after] = cost + price
                self.came_from[after] = place
                heapq.heappush(self._queue, (cost + price, -sum(after), *after))


def _common(left: Sequence[int], right: Sequence[int]) -> int:
    """How many calls are the same on both sides from the start."""
    limit = min(len(left), len(right))
    if left[:limit] == right[:limit]:
        return limit
    return next(place for place in range(limit) if left[place] != right[place])


def _steps(came_from: dict[tuple[int, int], tuple[int, int]], end: tuple[int, int]) -> list[tuple[str, int, int]]:
    """The gaps on the way to ``end``, in order: (kind, call of the left one, call of the right one)."""
    steps: list[tuple[str, int, int]] = []
    place = end
    while place in came_from:
        before = came_from[place]
        if place[0] - before[0] != place[1] - before[1]:
            steps.append(("insert" if place[1] == before[1] else "delete", *before))
        place = before
    return steps[::-1]


def _best_end(ends: list[tuple[int, int]], left: Behavior, right: Behavior) -> tuple[int, int]:
    """The best of equally cheap ends; in each, one of the two sequences has been passed as a whole.

    First an end after which the right one's next call is from a site that the left one has, so that others are missing
    before it; then the end furthest on.
    """
    known = frozenset(left.sites) if len(ends) > 1 else frozenset()

    def rank(end: tuple[int, int]) -> tuple[int, int]:
        i, j = end
        ran_ahead = i == len(left.sites) and j < len(right.sites) and right.sites[j] in known
        return 0 if ran_ahead else 1, -(i + j)

    return min(ends, key=rank)
