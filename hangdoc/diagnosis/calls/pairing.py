"""What it costs to let a call of one behavior match a call of another: the prices that an alignment adds up."""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.diagnosis.calls.history import END, Token
from hangdoc.diagnosis.frames.landmarks import Role, below_user, has_role

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


@dataclass(frozen=True, slots=True)
class Behavior:
    """Ranks whose calls in the group are equal, and those calls.

    ``kinds`` numbers them by what they are (operation, site, arguments), ``sites`` by where the program issues them.
    """

    ranks: tuple[int, ...]
    tokens: tuple[Token, ...]
    kinds: tuple[int, ...]
    sites: tuple[int, ...]


class Pairing:
    """The cost of letting two calls match: low where correct programs differ, high where the calls cannot match."""

    def __init__(self, left: Behavior, right: Behavior) -> None:
        self._left, self._right = left, right
        self._left_sites, self._right_sites = frozenset(left.sites), frozenset(right.sites)
        self._learned = self._learn()

    def cost(self, i: int, j: int) -> int:
        """Of the left one's call ``i`` and the right one's call ``j``: 0 if they match."""
        # One function: it is the table of prices, and runs for every pair of calls that the search looks at.
        a, b = self._left.tokens[i], self._right.tokens[j]
        here, there = self._left.sites[i], self._right.sites[j]
        together = a.sequence == b.sequence
        stuck = together and a.pending and b.pending
        if a.op != b.op:
            # On a device, the root of a broadcast is done with it though the others are in another call.
            never = stuck or (together and (a.pending or b.pending) and bool(a.state and b.state))
            return _IMPOSSIBLE if END in (a.op, b.op) or never else _OPERATION
        sizes_agree = a.sizes == b.sizes and (a.sizes is None or a.dtypes == b.dtypes)
        if stuck and here != there and a.dtypes and b.dtypes and a.dtypes != b.dtypes:
            return _IMPOSSIBLE  # also where sizes may differ, as in all_to_all
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
        partners, seen = self._completed_together()
        return {pair: times for pair, times in seen.items() if _belong_together(pair, times, partners)}

    def _completed_together(self) -> tuple[dict[int, dict[int, None]], dict[tuple[int, int], int]]:
        """(site → the sites it completed with, in their order; pair of sites → how often), of sites of one side."""
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
        return partners, seen


def _one_library_call(a: Token, b: Token) -> bool:
    """True if both synchronized gradients at one place of the library's code.

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
