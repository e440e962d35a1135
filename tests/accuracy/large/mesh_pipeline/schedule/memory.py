from __future__ import annotations

from dataclasses import dataclass

import torch

from feed.micro import Micro


@dataclass
class Held:
    """What backward needs of a micro-batch. Without ``result`` it has to be computed again."""

    micro: Micro
    given: torch.Tensor
    result: torch.Tensor | None


class Memory:
    """Activations between forward and backward, within this rank's budget."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.held: dict[int, Held] = {}
        self.peak = 0
        self.let_go = 0

    @property
    def used(self) -> int:
        return sum(each.micro.cost for each in self.held.values() if each.result is not None)

    def keep(self, micro: Micro, given: torch.Tensor, result: torch.Tensor) -> None:
        fits = self.used + micro.cost <= self.budget
        if not fits:
            self.let_go += 1
        self.held[micro.index] = Held(micro, given, result if fits else None)
        self.peak = max(self.peak, self.used)

    def take(self, micro: Micro) -> Held:
        if micro.index not in self.held:
            raise KeyError(f"micro-batch {micro.index} was never kept")
        return self.held.pop(micro.index)

    def holds(self, micro: Micro) -> bool:
        return micro.index in self.held

    @property
    def pressure(self) -> str:
        share = self.peak / self.budget if self.budget else 1.0
        return "high" if share > 0.75 else "medium" if share > 0.25 else "low"
