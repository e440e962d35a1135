from dataclasses import dataclass, field
from typing import NamedTuple

from optim.lion import Moments
from storage.policy import SaveWindow
from surrogate.network import Parameters


class StepNote(NamedTuple):
    step: int
    loss: float
    norm: float
    shocks: int


@dataclass
class State:
    parameters: Parameters
    moments: Moments
    window: SaveWindow
    notes: list[StepNote] = field(default_factory=list)
    snapshots: int = 0
    slow: int = 0

    def recent_loss(self, count: int = 10) -> float:
        recent = [note.loss for note in self.notes[-count:] if note.loss == note.loss]
        return sum(recent) / len(recent) if recent else float("nan")

    def is_worse(self) -> bool:
        """True if the last losses are above those before."""
        if len(self.notes) < 20:
            return False
        before = [note.loss for note in self.notes[-20:-10]]
        return self.recent_loss() > sum(before) / len(before)
