from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mesh.groups import Mesh
from monitor.clock import StepClock
from monitor.totals import Totals
from plan.config import Config

if TYPE_CHECKING:
    from schedule.memory import Memory


class Board:
    """Who says what: the last stage of the first replica tells of losses, others of what is odd with themselves."""

    def __init__(self, mesh: Mesh, config: Config) -> None:
        self.mesh = mesh
        self.lines: list[str] = []
        self.folder = Path(config.folder)
        self.told: set[str] = set()

    def say(self, text: str) -> None:
        print(f"{self.mesh.here}: {text}", file=sys.stderr, flush=True)

    def once(self, key: str, text: str) -> None:
        if key not in self.told:
            self.told.add(key)
            self.lines.append(text)

    def after_step(self, step: int, totals: Totals, norm: float, clock: StepClock, memory: Memory) -> None:
        here = self.mesh.here
        if here.is_last and here.replica == 0:
            self.say(f"step {step}: {totals} in {clock.last:.2f} s")
        match memory.pressure:
            case "high":
                self.once("memory", f"step {step}: memory is tight ({memory.peak} of {memory.budget})")
            case "medium" if here.is_first:
                self.once("memory", f"step {step}: memory is half used")
            case _:
                pass
        if memory.let_go:
            self.once("again", f"step {step}: computes again")
        if clock.slow and clock.slow[-1] == step:
            self.lines.append(f"step {step}: slow, {clock.last:.2f} s")
        if norm > 1.0 and here.stage in (0, here.stages - 1):
            self.once("norm", f"step {step}: large gradients ({norm:.2f})")

    def close(self) -> None:
        if not self.lines:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / f"board-{self.mesh.here}.txt").write_text("\n".join(self.lines) + "\n")
