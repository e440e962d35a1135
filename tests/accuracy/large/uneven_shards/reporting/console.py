"""Lines for a person at a terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from batching.plan import EpochPlan
from comm.world import World
from settings.schema import ReportingSettings

if TYPE_CHECKING:
    from assessment.perplexity import Assessment
    from training.epoch import EpochResult


def _bar(share: float, width: int = 12) -> str:
    full = int(share * width)
    return "".join("#" if place < full else "-" for place in range(width))


class Console:
    """The main rank speaks; the others only when something is odd."""

    def __init__(self, settings: ReportingSettings, world: World) -> None:
        self.settings = settings
        self.world = world
        self._kinds: set[str] = set()

    def say(self, text: str) -> None:
        print(f"[{self.world.rank}] {text}", file=sys.stderr, flush=True)

    def begin(self, plan: EpochPlan, shard: str) -> None:
        if self.world.is_main:
            self.say(f"epoch {plan.epoch}: {plan.steps} steps")
        elif shard.startswith("crawl"):
            self.say(f"reads {shard}")

    def step(self, step: int, plan: EpochPlan, loss: float, norm: float, seconds: float, kind: str) -> None:
        if kind not in self._kinds:
            self._kinds.add(kind)
            if len(self._kinds) > 1:
                self.say(f"step {step}: first {kind}")
        if not self.world.is_main or step % self.settings.every:
            return
        speed = f"{1 / seconds:.0f}/s" if seconds > 0 else "–"
        self.say(f"{_bar(plan.progress(step % max(1, plan.steps)))} step {step} loss {loss:.3f} |g| {norm:.2f} {speed}")

    def end(self, result: EpochResult, assessment: Assessment, screened: str) -> None:
        if self.world.is_main:
            self.say(f"epoch {result.epoch}: loss {result.loss:.3f}, perplexity {assessment.perplexity:.2f}")
        if "known" in screened and self.world.rank % 2:
            self.say(f"screen: {screened}")
