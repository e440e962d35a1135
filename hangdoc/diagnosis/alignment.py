"""Minimum repair: the fewest insertions and deletions after which the ranks' sequences can match.

Ranks with equal behaviour are folded first, so the cost grows with the number of *different* behaviours. Each
behaviour is then aligned with a consensus that starts from one of them and grows by the others' continuations;
the start that leaves the least to repair, weighted by ranks, wins. Starts that leave equally little are
alternatives: the tie is not ours to break here.

The end of a sequence costs nothing: a rank that has not issued a call yet may still do so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hangdoc.diagnosis.sequences import END, GroupHistory, Site, Token

GAP = 10
"""One call too many or too few."""
_LEARNED = 1
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
    """One repair. 'delete': ``token`` of these ranks has no partner; 'insert': ``token`` of the others is missing here.

    ``mine`` and ``theirs`` are what each side issued at this point (None: nothing yet).
    """

    kind: str
    ranks: tuple[int, ...]
    token: Token
    mine: Token | None
    theirs: Token | None


@dataclass(frozen=True, slots=True)
class Alignment:
    """The repair of one group from one start: what it costs and which ranks it changes."""

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
    for rank in history.members:
        if rank in history.blind:
            continue
        calls = list(history.tokens.get(rank, ()))
        if rank in ended:
            calls.append(_end(history, rank, calls))
        print_ = tuple((t.op, t.site, t.sizes, t.dtypes, t.pending, t.sequence) for t in calls)
        folded.setdefault(print_, []).append(rank)
        tokens.setdefault(print_, tuple(calls))
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
    found = [_from_start(history, behaviours, start) for start in behaviours[:_MOST_STARTS]]
    best = min(a.cost for a in found)
    unique: dict[tuple[int, ...], Alignment] = {}
    for alignment in found:
        if alignment.cost == best and alignment.gaps:
            unique.setdefault(alignment.culprits, alignment)
    if any(a.cost == best and not a.gaps for a in found):
        return []
    return list(unique.values())


def _from_start(history: GroupHistory, behaviours: list[Behaviour], start: Behaviour) -> Alignment:
    consensus = list(start.tokens)
    cost, gaps = 0, []
    for behaviour in [b for b in behaviours if b is not start]:
        pair_cost, steps, tail = align(consensus, behaviour.tokens, pairing(history, consensus, behaviour.tokens))
        weight = len(behaviour.ranks)
        cost += pair_cost * weight
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


def pairing(history: GroupHistory, left: Sequence[Token], right: Sequence[Token]) -> Callable[[Token, Token], int]:
    """The cost of letting two calls match. Cheap where correct programs differ, dear where they cannot match."""
    left_sites = {t.site for t in left}
    right_sites = {t.site for t in right}
    learned = _learned_pairs(left, right, left_sites, right_sites)

    def cost(a: Token, b: Token) -> int:
        if a.op != b.op:
            return _IMPOSSIBLE if END in (a.op, b.op) or _stuck_together(a, b) else _OPERATION
        sizes_agree = a.sizes == b.sizes and (a.sizes is None or a.dtypes == b.dtypes)
        if a.site == b.site:
            return 0 if sizes_agree else _SIZES
        if (a.site, b.site) in learned:
            return _LEARNED
        if _stuck_together(a, b) and (not sizes_agree or history.arrived(a.sequence)):
            return _IMPOSSIBLE
        own = a.site not in right_sites and b.site not in left_sites
        return _BOTH_SIDES_OWN if own else _SITE

    return cost


def _stuck_together(a: Token, b: Token) -> bool:
    """Both wait in the same numbered call: the backend has paired them, and they did not complete."""
    return a.pending and b.pending and a.sequence == b.sequence


def _learned_pairs(
    left: Sequence[Token], right: Sequence[Token], left_sites: set[Site], right_sites: set[Site]
) -> set[tuple[Site, Site]]:
    """Different sites that have completed together more than once and never with another: `if rank == 0:
    broadcast(…) else: broadcast(…)`. Only sites that the other side does not have qualify: after a shift, the
    ordinary calls of a loop would pair crosswise just as regularly."""
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
) -> tuple[int, list[tuple[str, int, int]], int]:
    """Align two sequences whose ends are free.

    Returns the cost, the steps ('insert', i, j: left[i] has no partner; 'delete', i, j: right[j] has none) and
    where right's free end begins. Gaps stand as late as possible: the ranks agreed until then.
    """
    # Equal beginnings match at no cost; only the rest needs the table.
    start = 0
    limit = min(len(left), len(right))
    while start < limit and pair(left[start], right[start]) == 0:
        start += 1
    a, b = left[start:], right[start:]
    band = 16
    while True:
        cost, steps, tail = _banded(a, b, pair, band)
        # A path that leaves the band has more gaps than the band is wide, and each gap costs GAP.
        if cost <= GAP * band or band >= max(len(a), len(b)):
            return cost, [(kind, i + start, j + start) for kind, i, j in steps], tail + start
        band *= 4


def _banded(
    a: Sequence[Token], b: Sequence[Token], pair: Callable[[Token, Token], int], band: int
) -> tuple[int, list[tuple[str, int, int]], int]:
    rows, columns = len(a), len(b)
    far = 1 << 60
    table: list[dict[int, int]] = []
    for i in range(rows + 1):
        row: dict[int, int] = {}
        above = table[i - 1] if i else {}
        for j in range(max(0, i - band), min(columns, i + band) + 1):
            if i == 0 and j == 0:
                row[0] = 0
                continue
            best = far
            if i and j and j - 1 in above:
                best = above[j - 1] + pair(a[i - 1], b[j - 1])
            if j in above:
                best = min(best, above[j] + GAP)
            if j - 1 in row:
                best = min(best, row[j - 1] + GAP)
            row[j] = best
        table.append(row)
    i, j = _best_end(table, a, b)
    cost, tail = table[i][j], j
    steps: list[tuple[str, int, int]] = []
    while i or j:
        here = table[i][j]
        if i and table[i - 1].get(j, far) + GAP == here:
            i -= 1
            steps.append(("insert", i, j))
        elif j and table[i].get(j - 1, far) + GAP == here:
            j -= 1
            steps.append(("delete", i, j))
        else:
            i, j = i - 1, j - 1
    return cost, steps[::-1], tail


def _best_end(table: list[dict[int, int]], a: Sequence[Token], b: Sequence[Token]) -> tuple[int, int]:
    """Either side may have more to come, but not both: one of them has reached its end.

    Between equally cheap ends prefer the story that the call in question tells: a call whose site the other
    side knows came too early there (others are missing); an unknown one is extra.
    """
    rows, columns = len(a), len(b)
    left_sites = {t.site for t in a}

    def rank(end: tuple[int, int]) -> tuple[int, int, int]:
        i, j = end
        ran_ahead = i == rows and j < columns and b[j].site in left_sites
        return table[i][j], 0 if ran_ahead else 1, -(i + j)

    ends = [(rows, j) for j in table[rows]] + [(i, columns) for i in range(rows + 1) if columns in table[i]]
    return min(ends, key=rank)
