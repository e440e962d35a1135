"""One pass over this rank's text."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from batching.plan import EpochPlan
from batching.stream import Stream
from comm.gather import Totals
from net.language_model import loss_of
from reporting.console import Console
from training.optimizing import Optimizing
from training.schedules import WarmCosine
from training.watching import SpeedWatch, SpikeWatch


@dataclass
class EpochResult:
    epoch: int
    steps: int
    loss: float
    characters: int
    spikes: int

    @property
    def is_finite(self) -> bool:
        return self.loss == self.loss and abs(self.loss) != float("inf")


class EpochRunner:
    def __init__(self, model: nn.Module, optimizing: Optimizing, schedule: WarmCosine, console: Console) -> None:
        self.model = model
        self.optimizing = optimizing
        self.schedule = schedule
        self.console = console
        self.spikes = SpikeWatch(optimizing.settings.spike_factor)
        self.speed = SpeedWatch(console.settings.slow_factor)
        self.step = 0

    def run(self, stream: Stream, plan: EpochPlan) -> EpochResult:
        self.model.train()
        self.speed.rest()
        totals = Totals(("steps", "loss", "characters", "spikes"))
        for batch in stream.batches(plan):
            loss = loss_of(self.model(batch.inputs), batch.targets)
            loss.backward()
            norm = self.optimizing.step(self.schedule(self.step))
            value = loss.item()
            spike = self.spikes.see(value)
            totals.add(steps=1, loss=value, characters=batch.targets.numel(), spikes=float(spike))
            self.console.step(self.step, plan, value, norm, self.speed.tick(), batch.kind)
            self.step += 1
        return self._finish(plan, totals)

    def _finish(self, plan: EpochPlan, totals: Totals) -> EpochResult:
        summed = totals.summed()
        steps = summed["steps"]
        return EpochResult(
            plan.epoch,
            int(totals.values["steps"]),
            summed["loss"] / steps if steps else float("nan"),
            int(summed["characters"]),
            int(summed["spikes"]),
        )
