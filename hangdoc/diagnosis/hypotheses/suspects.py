"""The sets of ranks that may be to blame, with the kinds of evidence for each.

Example: ranks 0 and 1 wait in an all_reduce for rank 2, which sleeps at another line → (2,) with 'root', 'sole root',
'frees all alone', 'another stack', and (0,), (1,) with less.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from typing import TypeVar

from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.needs.needs import Needs

Ranks = tuple[int, ...]
"""In order, each once."""
Evidence = frozenset[str]
"""Kinds of evidence, the words of ``weights.toml``."""

_H = TypeVar("_H", bound=Hashable)


class Suspects:
    """Collects them. Whoever is named by any kind of evidence is a suspect, and each rank alone is one."""

    def __init__(self, case: Case) -> None:
        self.case, self.needs = case, Needs(case)
        self.ranks: Ranks = tuple(sorted(case.activities))
        self._kinds: dict[Ranks, set[str]] = {(rank,): set() for rank in self.ranks if rank not in case.hidden}

    def add(self, ranks: Iterable[int], kind: str) -> None:
        """There is evidence of that kind against these ranks together; none where there are no ranks, or some that
        were not seen."""
        suspects = tuple(sorted(set(ranks)))
        if suspects and self.case.seen >= set(suspects):
            self._kinds.setdefault(suspects, set()).add(kind)

    def add_classes(self, classes: Iterable[Iterable[int]], kind: str) -> None:
        """Of ranks that fall into classes, those outside of the one largest are odd: each class of them, and all."""
        found = sorted((tuple(each) for each in classes), key=len, reverse=True)
        if len(found) < 2:
            return
        largest = found[:1] if len(found[0]) > len(found[1]) else []
        odd = found[len(largest) :]
        for each in odd:
            self.add(each, kind)
        if largest and len(odd) > 1:
            self.add((rank for each in odd for rank in each), kind)

    def every(self) -> tuple[Ranks, ...]:
        """All of them, as far as they are known by now."""
        return tuple(self._kinds)

    def evidence(self) -> Mapping[Ranks, Evidence]:
        """Suspects → what speaks for or against them."""
        return {ranks: frozenset(kinds) for ranks, kinds in self._kinds.items()}


def classes(values: Mapping[int, _H]) -> list[Ranks]:
    """The ranks of equal values together. Example: {0: 'a', 1: 'b', 2: 'a'} → [(0, 2), (1,)]."""
    found: defaultdict[_H, list[int]] = defaultdict(list)
    for rank in sorted(values):
        found[values[rank]].append(rank)
    return [tuple(ranks) for ranks in found.values()]
