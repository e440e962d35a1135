from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from mesh.groups import Mesh

if TYPE_CHECKING:
    from schedule.memory import Memory
    from schedule.runner import StepOutcome


@dataclass(frozen=True)
class Totals:
    loss: float
    forwards: int
    recomputed: int
    peak: int

    def __str__(self) -> str:
        again = f", {self.recomputed} computed again" if self.recomputed else ""
        return f"loss {self.loss:.4f}, {self.forwards} forwards{again}, peak {self.peak}"


def step_totals(outcome: StepOutcome, memory: Memory, mesh: Mesh) -> Totals:
    """Over all ranks; only last stages have a loss."""
    share = 1.0 / mesh.here.replicas if outcome.losses else 0.0
    row = torch.tensor([outcome.loss * share, outcome.forwards, memory.let_go, memory.peak], dtype=torch.float64)
    dist.all_reduce(row)
    loss, forwards, recomputed, peak = row.tolist()
    return Totals(loss, int(forwards), int(recomputed), int(peak))
