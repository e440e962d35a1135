"""One row of numbers from every rank."""

from __future__ import annotations

import torch
import torch.distributed as dist


class Totals:
    """Named numbers, added up over the ranks when asked."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.values = dict.fromkeys(names, 0.0)

    def add(self, **numbers: float) -> None:
        for name, number in numbers.items():
            if name not in self.values:
                raise KeyError(f"{name} is not one of {', '.join(self.names)}")
            self.values[name] += number

    def by_rank(self) -> list[dict[str, float]]:
        mine = torch.tensor([self.values[name] for name in self.names], dtype=torch.float64)
        rows = [torch.zeros_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(rows, mine)
        return [dict(zip(self.names, row.tolist(), strict=True)) for row in rows]

    def summed(self) -> dict[str, float]:
        rows = self.by_rank()
        return {name: sum(row[name] for row in rows) for name in self.names}
