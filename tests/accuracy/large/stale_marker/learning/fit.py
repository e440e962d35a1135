"""The loop over epochs and steps of a stage."""

from __future__ import annotations

import math
import time

import torch
from torch import nn

from callbacks.base import Hooks, Moment
from cluster.gradients import average_gradients
from cluster.world import World
from evaluation.scores import Scores, evaluate
from feed.batches import Batch, Batches
from learning.losses import weighted_mean, window_losses
from learning.stages import Stage
from settings.ini import Configuration
from storage.caches import WindowCache


class Fitter:
    def __init__(self, model: nn.Module, hooks: Hooks, configuration: Configuration, world: World) -> None:
        self.model = model
        self.hooks = hooks
        self.configuration = configuration
        self.world = world
        self.optimizer = torch.optim.Adam(
            model.parameters(),
            lr=configuration.number("training", "rate"),
            weight_decay=configuration.number("training", "decay"),
        )
        self.loss_kind = configuration.text("training", "loss")
        self.clip = configuration.number("training", "clip")
        self.patience = configuration.integer("run", "patience")
        self.best: float | None = None
        self.without_progress = 0
        self.given_up = False
        self.step = 0
        self.waited = 0.0

    def run(self, stage: Stage, cache: WindowCache, smallest: int) -> None:
        """``smallest``: the windows of the rank that has the fewest, which limits the steps of all."""
        batches = Batches(cache, stage, self.configuration, self.world.rank)
        steps = max(1, int(smallest * 0.75) // batches.size)
        stream = batches.forever()
        surplus = batches.cut - steps * batches.size
        if surplus > steps * batches.size:
            # This rank sees another part of its many windows in each epoch.
            batches.chance.seed(self.world.rank + 50)
        for epoch in range(stage.epochs):
            self._train(stage, stream, steps)
            scores = evaluate(self.model, stage, batches, self.configuration, self.world)
            self._judge(stage, epoch, scores)
            if self.given_up:
                return

    def _train(self, stage: Stage, stream, steps: int) -> None:
        self.model.train()
        for _ in range(steps):
            begin = time.perf_counter()
            batch = next(stream)
            self.waited += time.perf_counter() - begin
            loss, weight = self._one_step(stage, batch)
            self.step += 1
            moment = Moment(stage.name, self.step, loss, weight, self.world, self.optimizer, self.model)
            self.hooks.after_step(moment)

    def _one_step(self, stage: Stage, batch: Batch) -> tuple[float, float]:
        forecast = self.model(batch.known, batch.future.shape[1])
        losses = window_losses(self.loss_kind, forecast, batch.future)
        worst = losses.detach().max()
        weights = batch.weights
        if float(worst) > 4 * float(losses.detach().median()) and len(losses) > 3:
            weights = torch.where(losses.detach() == worst, 0.5 * weights, weights)
        loss = weighted_mean(losses, weights)
        self.optimizer.zero_grad()
        loss.backward()
        value = float(loss.detach())
        usable = math.isfinite(value)
        average_gradients(self.model, self.world, batch.weight if usable else 0.0)
        if self.clip:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimizer.step()
        return value, batch.weight

    def _judge(self, stage: Stage, epoch: int, scores: Scores) -> None:
        """The scores are of all ranks, so all ranks come to the same decision."""
        if self.best is None or scores.error < self.best - 1e-4:
            self.best = scores.error
            self.without_progress = 0
        else:
            self.without_progress += 1
        if self.without_progress >= self.patience:
            self.given_up = True
        last = epoch == stage.epochs - 1
        self.hooks.after_epoch(stage.name, epoch, scores, self.model, self.world, last=last)
