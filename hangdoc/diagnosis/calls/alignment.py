"""Minimum repair: the fewest insertions and deletions after which the ranks' sequences can match.

Ranks with equal behaviour are folded first, so the cost grows with the number of *different* behaviours. Each
behaviour is then aligned with a consensus, which starts from one of them and is extended by the others' further calls.
The start whose repair changes the fewest calls, counted over ranks, wins. Starts that change equally many are
alternatives: ``blame.tie_break`` chooses among them.

The end of a sequence costs nothing: a rank that has not issued a call yet may still do so.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hangdoc.diagnosis.calls.history import END, GroupHistory, Token
from hangdoc.diagnosis.frames.landmarks import Role, below_user, has_role
from hangdoc.diagnosis.frames.stacks import Site

# The prices are chosen by their order alone, and held by the saved cases: to let two calls match that differ in line or
# sizes is cheaper than a gap, in operation dearer than one gap and cheaper than two.
GAP = 10
"""One call too many or too few: the unit."""
_BOTH_SIDES_OWN = 4
"""Two lines of which neither side knows the other's: probably two arms of one condition. Less than half a gap."""
_SITE = 8
"""Two lines of which one side knows both: less than a gap, or a shift would never be seen as different lines."""
_SIZES = 8
"""One line, other sizes: as two lines."""
_OPERATION = 15
"""Between one gap and two: matched only where a deletion and an insertion are the alternative."""
_IMPOSSIBLE = 21
"""More than a deletion and an insertion: these two calls are known not to match."""

_MOST_STARTS = 6
"""Behaviours from which a repair is tried, the most common first; chosen by hand: each is aligned with all others."""
_MOST_PLACES = 100_000
"""Of one search; chosen by hand: behaviours that need more have little in common."""


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Ranks whose calls in the group are equal, and those calls.

    ``kinds`` numbers them by what they are (operation, site, arguments), ``sites`` by where they stand.
    """

    ranks: tuple[int, ...]
    tokens: tuple[Token, ...]
    kinds: tuple[int, ...]
    sites: tuple[int, ...]


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


def fold(history: GroupHistory, ended: frozenset[int]) -> list[Behaviour]:
    """Ranks with equal behaviour together, the most common first, longer ones before shorter.

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
    whole: dict[tuple[object, ...], Behaviour] = {}
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
        whole.setdefault(print_, Behaviour((), tokens, what, at))
    behaviours = [replace(whole[key], ranks=tuple(sorted(ranks))) for key, ranks in folded.items()]
    return sorted(behaviours, key=lambda b: (-len(b.ranks), -len(b.tokens), b.ranks))


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
    behaviours = fold(history, ended)
    if len(behaviours) < 2:
        return []
    found = [_from_start(history, behaviours, start) for start in behaviours[:_MOST_STARTS]]
    found.sort(key=lambda a: a.cost)
    if not found[0].gaps:
        return []
    unique: dict[tuple[int, ...], Alignment] = {}
    for alignment in found:
        unique.setdefault(alignment.culprits, alignment)
    return list(unique.values())


def _from_start(history: GroupHistory, behaviours: list[Behaviour], start: Behaviour) -> Alignment:
    """The repair that takes ``start`` for correct and changes all other behaviours."""
    consensus = Behaviour((), start.tokens, start.kinds, start.sites)
    cost = 0
    gaps: list[Gap] = []
    for behaviour in [b for b in behaviours if b is not start]:
        steps, tail = align(consensus, behaviour)
        # What counts is how many calls change; differing sites only steer the path.
        cost += len(steps) * len(behaviour.ranks)
        gaps += [_gap(step, consensus, behaviour) for step in _with_replaced(steps)]
        if tail < len(behaviour.tokens):
            consensus = Behaviour(
                (),
                consensus.tokens + behaviour.tokens[tail:],
                consensus.kinds + behaviour.kinds[tail:],
                consensus.sites + behaviour.sites[tail:],
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


def _gap(step: tuple[str, int, int], consensus: Behaviour, behaviour: Behaviour) -> Gap:
    """A step of ``align`` as a gap of the behaviour's ranks."""
    kind, i, j = step
    theirs = consensus.tokens[i] if i < len(consensus.tokens) else None
    mine = behaviour.tokens[j] if j < len(behaviour.tokens) else None
    token = mine if kind == "delete" else theirs
    if token is None:
        raise AssertionError("a repair without a call")
    return Gap(kind, behaviour.ranks, token, mine, theirs)


class Pairing:
    """The cost of letting two calls match: low where correct programs differ, high where the calls cannot match."""

    def __init__(self, left: Behaviour, right: Behaviour) -> None:
        self._left, self._right = left, right
        self._left_sites, self._right_sites = frozenset(left.sites), frozenset(right.sites)
        self._learned = self._learn()

    def cost(self, i: int, j: int) -> int:
        """Of the left one's call ``i`` and the right one's call ``j``: 0 if they match.

        One function in spite of its branches: it is the table of prices, from the dearest row to the cheapest, and runs
        for every pair of calls that the search looks at.
        """
        a, b = self._left.tokens[i], self._right.tokens[j]
        here, there = self._left.sites[i], self._right.sites[j]
        together = a.sequence == b.sequence
        stuck = together and a.pending and b.pending
        if a.op != b.op:
            return _IMPOSSIBLE if END in (a.op, b.op) or stuck else _OPERATION
        sizes_agree = a.sizes == b.sizes and (a.sizes is None or a.dtypes == b.dtypes)
        if here == there:
            return 0 if sizes_agree or (together and not stuck) else _SIZES
        if together and sizes_agree and a.sizes is not None and not stuck and _one_library_call(a, b):
            return 0
        times = self._learned.get((here, there), 0)
        if times > 1 or (times == 1 and not together):
            return 0
        if not sizes_agree:
            return _IMPOSSIBLE if stuck else _OPERATION
        own = here not in self._right_sites and there not in self._left_sites
        return _BOTH_SIDES_OWN if own else _SITE

    def _learn(self) -> dict[tuple[int, int], int]:
        """(left site, right site) → how often two calls from there have completed together.

        Example: `if rank == 0: broadcast(…) else: broadcast(…)`. A pair counts if each was the other's first partner,
        or if one never had another partner. Sites that both sides have are left out: after a shift, the ordinary calls
        of a loop would pair crosswise just as regularly.
        """
        if self._left_sites == self._right_sites:
            return {}
        by_number = {t.sequence: (t, site) for t, site in zip(self._right.tokens, self._right.sites, strict=True)}
        partners: dict[int, dict[int, None]] = {}
        seen: dict[tuple[int, int], int] = {}
        for a, here in zip(self._left.tokens, self._left.sites, strict=True):
            if here in self._right_sites or a.sequence not in by_number:
                continue
            b, there = by_number[a.sequence]
            if there in self._left_sites or a.pending or b.pending or a.op != b.op:
                continue
            partners.setdefault(here, {})[there] = None
            partners.setdefault(there, {})[here] = None
            seen[here, there] = seen.get((here, there), 0) + 1
        return {pair: times for pair, times in seen.items() if _belong_together(pair, times, partners)}


def _one_library_call(a: Token, b: Token) -> bool:
    """True if both synchronised gradients at one place of the library's code.

    That is due once in a step, whichever line calls backward(). A forward that communicates is different: it may be
    extra (a validation).
    """
    return has_role(a.stack, Role.BACKWARD) and below_user(a.stack) == below_user(b.stack)


def _belong_together(pair: tuple[int, int], times: int, partners: dict[int, dict[int, None]]) -> bool:
    """True for two arms of one condition. ``partners``: site → the sites it completed with, in their order.

    Three times is chosen by hand: two may be a coincidence at the start of a loop.
    """
    here, there = pair
    if next(iter(partners[here])) == there and next(iter(partners[there])) == here:
        return True
    return times > 2 and min(len(partners[here]), len(partners[there])) == 1


def align(left: Behaviour, right: Behaviour) -> tuple[list[tuple[str, int, int]], int]:
    """Align two sequences whose ends are free.

    Returns the steps ('insert', i, j: the left one's call i has no partner; 'delete', i, j: the right one's call j
    has none) and where the right one's free end begins. Gaps stand as late as possible: the ranks agreed until then.

    A best-first search: calls that match at no cost are passed at once, so the work grows with the repair and not
    with the length of the sequences. It is one function in spite of its length: one loop over one queue.

    Example: left A B C, right A C, where B and C are other operations → [('insert', 1, 1)], 2.
    """
    rows, columns = len(left.kinds), len(right.kinds)
    i = _common(left.kinds, right.kinds)
    if i in (rows, columns):
        return [], i
    pair = Pairing(left, right).cost
    # A place is (calls of the left one passed, calls of the right one passed).
    cheapest: dict[tuple[int, int], int] = {(i, i): 0}
    came_from: dict[tuple[int, int], tuple[int, int]] = {}
    # (cost, minus how far on, place): among equally cheap places the one furthest on goes first.
    queue: list[tuple[int, int, int, int]] = [(0, 0, i, i)]
    ends: list[tuple[int, int]] = []
    limit: int | None = None
    while queue:
        cost, _, i, j = heapq.heappop(queue)
        if limit is not None and cost > limit:
            break
        if len(came_from) > _MOST_PLACES and not ends:
            ends.append(max(came_from, key=sum))  # little in common: the rest is not compared
            break
        if cost > cheapest[i, j]:
            continue
        start = (i, j)
        while i < rows and j < columns and (left.kinds[i] == right.kinds[j] or pair(i, j) == 0):
            i, j = i + 1, j + 1
        if (i, j) != start:
            # A place that another path reached at this cost has been searched already.
            if cheapest.get((i, j), cost + 1) <= cost:
                continue
            cheapest[i, j] = cost
            came_from[i, j] = start
        if i == rows or j == columns:
            ends.append((i, j))
            limit = cost
            continue
        for step, price in (((1, 1), pair(i, j)), ((1, 0), GAP), ((0, 1), GAP)):
            place = (i + step[0], j + step[1])
            if cost + price < cheapest.get(place, cost + price + 1):
                cheapest[place] = cost + price
                came_from[place] = (i, j)
                heapq.heappush(queue, (cost + price, -sum(place), *place))
    end = _best_end(ends, left, right)
    return _steps(came_from, end), end[1]


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


def _best_end(ends: list[tuple[int, int]], left: Behaviour, right: Behaviour) -> tuple[int, int]:
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
