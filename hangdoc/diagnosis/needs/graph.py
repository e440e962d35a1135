"""The wait-for graph of the ranks with AND and OR: who is stuck for good, and whose going on would free whom.

Of AND a rank goes on when all that it waits for have, of OR when one has (the two models of Chandy, Misra and Haas,
1983). Thousands of ranks may wait for the same others: that set is one tuple, which they share.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property

from hangdoc.diagnosis.needs.need import Need


@dataclass(frozen=True)
class NeedGraph:
    """Of what the ranks need of each other."""

    needs: tuple[Need, ...]
    """Those with ``on``; one of each rank that waits."""
    movable: frozenset[int]
    """Ranks that go on as soon as nothing holds them: neither gone nor stopped."""

    @cached_property
    def stuck(self) -> frozenset[int]:
        """Those that wait for what no future step of the others brings."""
        return _stuck(self.needs, self.movable)

    @cached_property
    def roots(self) -> frozenset[int]:
        """Ranks that others wait for and that wait for no rank themselves."""
        awaited = {rank for need in distinct(self.needs) for rank in need.on}
        return frozenset(awaited) - {need.waiter.rank for need in self.needs}

    def on(self, rank: int) -> tuple[int, ...]:
        """The ranks that it waits for."""
        need = self._by_rank.get(rank)
        return need.on if need is not None else ()

    def left(self, ranks: Collection[int]) -> frozenset[int]:
        """Those that would still be stuck if these waited for nothing."""
        freed = frozenset(ranks)
        return _stuck([need for need in self.needs if need.waiter.rank not in freed], self.movable | freed)

    def dissolves(self, ranks: Collection[int]) -> bool:
        """True if no rank would be stuck if these waited for nothing, and those that are gone stayed gone."""
        freed = frozenset(ranks)
        return not _stuck([need for need in self.needs if need.waiter.rank not in freed], self.movable)

    @cached_property
    def _by_rank(self) -> dict[int, Need]:
        return {need.waiter.rank: need for need in self.needs}


def distinct(needs: Iterable[Need]) -> Collection[Need]:
    """One need of each set of needs that share their ``on``."""
    return {(id(need.on), need.either): need for need in needs}.values()


def _stuck(needs: Collection[Need], movable: frozenset[int]) -> frozenset[int]:
    """Example: 0 waits for 1, 1 for 0 and 2, 3 for 2, and 2 is free to go on → 3 gets free, 0 and 1 are stuck. If 1
    waits for 0 or 2, it gets free, and then 0."""
    left: dict[tuple[int, bool], int] = {}
    waiters: dict[tuple[int, bool], list[int]] = {}
    needed_by: dict[int, list[tuple[int, bool]]] = {}
    for need in distinct(needs):
        key = id(need.on), need.either
        left[key] = 1 if need.either else len(need.on)
        for rank in need.on:
            needed_by.setdefault(rank, []).append(key)
    for need in needs:
        waiters.setdefault((id(need.on), need.either), []).append(need.waiter.rank)
    waiting = frozenset(need.waiter.rank for need in needs)
    free = set(movable - waiting)
    queue = list(free)
    while queue:
        for key in needed_by.get(queue.pop(), ()):
            left[key] -= 1
            news = [rank for rank in waiters[key] if rank in movable] if left[key] == 0 else []
            free.update(news)
            queue += news
    return waiting - free
