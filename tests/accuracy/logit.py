"""Weights of kinds of evidence, measured on examples: the most likely ones of a conditional logit (McFadden 1974).

Each example has alternatives, of which some are right. Weights that are measured on the examples of other programs
alone say how well they will do on programs that nobody has seen.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from hangdoc.diagnosis.weighing import shares

PARTS = 10
VARIANT = re.compile(r"^(attach(ed)?|watch(ed)?)_|_(attach(ed)?|watch(ed)?|stacks|with_histories|by_counters)$")


@dataclass(frozen=True)
class Example:
    """One case: the evidence for each alternative, and the places of the right ones, none where none of them is."""

    name: str
    alternatives: tuple[frozenset[str], ...]
    right: frozenset[int]

    @property
    def part(self) -> int:
        """Of ``PARTS``: all cases of a program have the same."""
        return zlib.crc32(VARIANT.sub("", self.name).encode()) % PARTS

    def likeliest(self, weights: Mapping[str, float]) -> tuple[int, float]:
        """(its place, its share)."""
        found = shares(dict(enumerate(self.alternatives)), weights)
        first = max(found, key=lambda place: found[place])
        return first, found[first]


def kinds_in(examples: Iterable[Example], fewest: int) -> list[str]:
    """The kinds of evidence that occur in as many examples."""
    return sorted(kind for kind, count in occurring(examples).items() if count >= fewest)


def occurring(examples: Iterable[Example]) -> Counter[str]:
    """Kind → in how many examples it occurs."""
    return Counter(kind for each in examples for kind in {k for kinds in each.alternatives for k in kinds})


def measured(examples: Sequence[Example], kinds: Sequence[str], strength: float) -> dict[str, float]:
    """Kind → weight, by L-BFGS. ``strength``: of the normal prior of each weight (1 / variance)."""
    places = {kind: at for at, kind in enumerate(kinds)}
    rows: list[int] = []
    columns: list[int] = []
    owners: list[int] = []
    right: list[float] = []
    for number, each in enumerate(examples):
        for at, evidence in enumerate(each.alternatives if each.right else ()):
            here = [places[kind] for kind in evidence if kind in places]
            rows += [len(owners)] * len(here)
            columns += here
            owners.append(number)
            right.append(float(at in each.right))
    shape = (len(owners), len(places))
    matrix = torch.sparse_coo_tensor(
        torch.tensor([rows, columns]), torch.ones(len(rows), dtype=torch.double), shape, check_invariants=True
    ).coalesce()
    owner, is_right = torch.tensor(owners), torch.tensor(right, dtype=torch.double)
    weights = torch.zeros(len(places), dtype=torch.double, requires_grad=True)
    search = torch.optim.LBFGS([weights], max_iter=200, line_search_fn="strong_wolfe")
    none = torch.zeros(len(examples), dtype=torch.double)

    def loss() -> torch.Tensor:
        search.zero_grad()
        powers = torch.sparse.mm(matrix, weights[:, None])[:, 0].exp()
        wholes, told = none.index_add(0, owner, powers), none.index_add(0, owner, powers * is_right)
        some = wholes > 0
        found = wholes[some].log().sum() - told[some].log().sum() + strength * weights.square().sum() / 2
        found.backward()  # type: ignore[no-untyped-call]
        return found

    search.step(loss)  # type: ignore[no-untyped-call]
    return {kind: float(weights[at].detach()) for kind, at in places.items()}


def left_out(examples: Sequence[Example], kinds: Sequence[str], strength: float) -> dict[str, tuple[int, float]]:
    """Case → (the place of its likeliest, its share), with weights that are measured on other programs."""
    found = {}
    for part in range(PARTS):
        weights = measured([each for each in examples if each.part != part], kinds, strength)
        found.update({each.name: each.likeliest(weights) for each in examples if each.part == part})
    return found


def written(command: str, weights: Mapping[str, float], counts: Mapping[str, int], least: float = 0.0) -> str:
    """The table: a kind of evidence a line, the heaviest first; none that weighs less than ``least``."""
    head = f"# Written by {command} --write. Of each kind of evidence: its weight, and in how many of the\n"
    head += "# saved cases it occurs.\n"
    order: Collection[str] = sorted(weights, key=lambda kind: -abs(weights[kind]))
    kept = [kind for kind in order if abs(weights[kind]) >= least]
    return head + "".join(f'"{k}" = {{ weight = {weights[k]:.2f}, cases = {counts[k]} }}\n' for k in kept)
