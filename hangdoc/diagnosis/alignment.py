"""Minimum repair: the fewest insertions and deletions after which the ranks' sequences can match.

Ranks with equal behaviour are folded first, so the cost grows with the number of *different* behaviours. Each
behaviour is then aligned with a consensus that starts from one of them and grows by the others' continuations;
the start whose repair changes the fewest calls, counted over ranks, wins. Starts that change equally many are
alternatives: the tie is not ours to break here.

The end of a sequence costs nothing: a rank that has not issued a call yet may still do so.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hangdoc.diagnosis.sequences import END, GroupHistory, Site, Token

GAP = 10
"""One call too many or too few."""
_BOTH_SIDES_OWN = 4
_SITE = 8
_SIZES = 8
_OPERATION = 15
_IMPOSSIBLE = 21
"""More than a deletion and an insertion: these two calls are known not to match."""

_MOST_STARTS = 6


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Ranks whose calls in the group are equal, and those calls."""

    ranks: tuple[int, ...]
    tokens: tuple[Token, ...]


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
        """Time of the first repair (ns), to tell which group parted first."""
        first = self.first
        times = [t.created_ns for t in (first.mine, first.theirs, first.token) if t and t.created_ns] if first else []
        return min(times, default=0)

    @property
    def first(self) -> Gap | None:
        """The earliest repair: the divergence."""
        return min(self.gaps, key=lambda g: (g.token.created_ns or 0, g.token.sequence)) if self.gaps else None


def fold(history: GroupHistory, ended: frozenset[int]) -> list[Behaviour]:
    """Ranks with equal fingerprints together, the most common behaviour first, longer ones before shorter."""
    folded: dict[tuple[object, ...], list[int]] = {}
    tokens: dict[tuple[object, ...], tuple[Token, ...]] = {}
    prints: dict[tuple[int, bool], tuple[object, ...]] = {}
    blind = frozenset(history.blind)
    for rank in history.members:
        if rank in blind:
            continue
        calls = history.tokens.get(rank, [])
        # Ranks of equal programs share one list of tokens: it is read once.
        known = (id(calls) if calls else 0, rank in ended)
        if known not in prints:
            whole = (*calls, _end(history, rank, calls)) if rank in ended else tuple(calls)
            prints[known] = tuple((t.op, t.site, t.sizes, t.dtypes, t.pending, t.sequence) for t in whole)
            tokens.setdefault(prints[known], whole)
        folded.setdefault(prints[known], []).append(rank)
    behaviours = [Behaviour(tuple(ranks), tokens[key]) for key, ranks in folded.items()]
    return sorted(behaviours, key=lambda b: (-len(b.ranks), -len(b.tokens), b.ranks))


def _end(history: GroupHistory, rank: int, calls: Sequence[Token]) -> Token:
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

    ``ended`` are ranks that will never issue another call.
    """
    behaviours = fold(history, ended)
    if len(behaviours) < 2:
        return []
    disputed = disputed_numbers(history)
    found = [_from_start(history, behaviours, start, disputed) for start in behaviours[:_MOST_STARTS]]
    best = min(a.cost for a in found)
    unique: dict[tuple[int, ...], Alignment] = {}
    for alignment in found:
        if alignment.cost == best and alignment.gaps:
            unique.setdefault(alignment.culprits, alignment)
    if any(a.cost == best and not a.gaps for a in found):
        return []
    return list(unique.values())


def disputed_numbers(history: GroupHistory) -> frozenset[int]:
    """The numbers at which members wait with operations or sizes that cannot match: that is why they wait, and
    calls of one operation from different sites there may well belong together."""
    waiting: dict[int, set[tuple[object, ...]]] = {}
    seen: set[int] = set()
    for calls in history.tokens.values():
        if id(calls) not in seen:
            seen.add(id(calls))
            for token in calls:
                if token.pending:
                    waiting.setdefault(token.sequence, set()).add((token.op, token.sizes, token.dtypes))
    return frozenset(number for number, kinds in waiting.items() if len(kinds) > 1)


def _from_start(
    history: GroupHistory, behaviours: list[Behaviour], start: Behaviour, disputed: frozenset[int]
) -> Alignment:
    consensus = list(start.tokens)
    cost = 0
    gaps: list[Gap] = []
    for behaviour in [b for b in behaviours if b is not start]:
        pair = pairing(history, consensus, behaviour.tokens, disputed)
        steps, tail = align(consensus, behaviour.tokens, pair)
        # What counts is how many calls change; differing sites only steer the path.
        cost += len(steps) * len(behaviour.ranks)
        gaps += [_gap(step, consensus, behaviour) for step in steps]
        consensus += behaviour.tokens[tail:]
    return Alignment(history, cost, tuple(gaps), tuple(consensus))


def _gap(step: tuple[str, int, int], consensus: list[Token], behaviour: Behaviour) -> Gap:
    kind, i, j = step
    theirs = consensus[i] if i < len(consensus) else None
    mine = behaviour.tokens[j] if j < len(behaviour.tokens) else None
    token = mine if kind == "delete" else theirs
    if token is None:
        raise AssertionError("a repair without a call")
    return Gap(kind, behaviour.ranks, token, mine, theirs)


def pairing(
    history: GroupHistory, left: Sequence[Token], right: Sequence[Token], disputed: frozenset[int]
) -> Callable[[Token, Token], int]:
    """The cost of letting two calls match. Cheap where correct programs differ, dear where they cannot match."""
    left_sites = {t.site for t in left}
    right_sites = {t.site for t in right}
    learned = _learned_pairs(left, right, left_sites, right_sites)

    def cost(a: Token, b: Token) -> int:
        together = a.sequence == b.sequence
        stuck = together and a.pending and b.pending
        if a.op != b.op:
            return _IMPOSSIBLE if END in (a.op, b.op) or stuck else _OPERATION
        sizes_agree = a.sizes == b.sizes and (a.sizes is None or a.dtypes == b.dtypes)
        if a.site == b.site:
            return 0 if sizes_agree or (together and not stuck) else _SIZES
        if (a.site, b.site) in learned:
            return 0
        if stuck and (not sizes_agree or (a.sequence not in disputed and history.arrived(a.sequence))):
            return _IMPOSSIBLE
        own = a.site not in right_sites and b.site not in left_sites
        return _BOTH_SIDES_OWN if own else _SITE

    return cost


def _learned_pairs(
    left: Sequence[Token], right: Sequence[Token], left_sites: set[Site], right_sites: set[Site]
) -> set[tuple[Site, Site]]:
    """Different sites that have completed together more than once and never with another: `if rank == 0:
    broadcast(…) else: broadcast(…)`. Only sites that the other side does not have qualify: after a shift, the
    ordinary calls of a loop would pair crosswise just as regularly."""
    if left_sites == right_sites:
        return set()
    by_number = {t.sequence: t for t in right}
    partners: dict[Site, set[Site]] = {}
    seen: dict[tuple[Site, Site], int] = {}
    for a in left:
        b = by_number.get(a.sequence)
        if b is None or a.site == b.site or a.pending or b.pending or a.op != b.op:
            continue
        if a.site in right_sites or b.site in left_sites:
            continue
        partners.setdefault(a.site, set()).add(b.site)
        seen[a.site, b.site] = seen.get((a.site, b.site), 0) + 1
    return {pair for pair, times in seen.items() if times > 1 and len(partners[pair[0]]) == 1}


def align(
    left: Sequence[Token], right: Sequence[Token], pair: Callable[[Token, Token], int]
) -> tuple[list[tuple[str, int, int]], int]:
    """Align two sequences whose ends are free.

    Returns the steps ('insert', i, j: left[i] has no partner; 'delete', i, j: right[j] has none) and where right's
    free end begins. Gaps stand as late as possible: the ranks agreed until then.

    A best-first search: calls that match at no cost are passed at once, so the work grows with the repair and not
    with the length of the sequences.
    """
    rows, columns = len(left), len(right)
    cheapest: dict[tuple[int, int], int] = {(0, 0): 0}
    came: dict[tuple[int, int], tuple[int, int]] = {}
    # Among equally cheap places the one furthest on goes first.
    queue: list[tuple[int, int, int, int]] = [(0, 0, 0, 0)]
    ends: list[tuple[int, int]] = []
    limit: int | None = None
    while queue:
        cost, _, i, j = heapq.heappop(queue)
        if limit is not None and cost > limit:
            break
        if cost > cheapest[i, j]:
            continue
        start = (i, j)
        while i < rows and j < columns and pair(left[i], right[j]) == 0:
            i, j = i + 1, j + 1
        if (i, j) != start:
            # Where another path came here as cheaply, it has been looked at already.
            if cheapest.get((i, j), cost + 1) <= cost:
                continue
            cheapest[i, j] = cost
            came[i, j] = start
        if i == rows or j == columns:
            ends.append((i, j))
            limit = cost
            continue
        for step, price in (((1, 1), pair(left[i], right[j])), ((1, 0), GAP), ((0, 1), GAP)):
            place = (i + step[0], j + step[1])
            if cost + price < cheapest.get(place, cost + price + 1):
                cheapest[place] = cost + price
                came[place] = (i, j)
                heapq.heappush(queue, (cost + price, -sum(place), *place))
    end = _best_end(ends, left, right)
    return _steps(came, end), end[1]


def _steps(came: dict[tuple[int, int], tuple[int, int]], end: tuple[int, int]) -> list[tuple[str, int, int]]:
    """The gaps on the way to ``end``, in order."""
    steps: list[tuple[str, int, int]] = []
    place = end
    while place in came:
        before = came[place]
        if place[0] - before[0] != place[1] - before[1]:
            steps.append(("insert" if place[1] == before[1] else "delete", *before))
        place = before
    return steps[::-1]


def _best_end(ends: list[tuple[int, int]], left: Sequence[Token], right: Sequence[Token]) -> tuple[int, int]:
    """Either side may have more to come, but not both: one of them has reached its end.

    Between equally cheap ends prefer the story that the call in question tells: a call whose site the other
    side knows came too early there (others are missing); an unknown one is extra.
    """
    left_sites = {t.site for t in left} if len(ends) > 1 else set()

    def rank(end: tuple[int, int]) -> tuple[int, int]:
        i, j = end
        ran_ahead = i == len(left) and j < len(right) and right[j].site in left_sites
        return 0 if ran_ahead else 1, -(i + j)

    return min(ends, key=rank)
