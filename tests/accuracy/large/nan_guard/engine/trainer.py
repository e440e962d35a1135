"""The loop over epochs and steps."""

from __future__ import annotations

import logging

from engine.optimizer import Descent
from engine.schedule import Schedule
from engine.state import EpochRow, StepState
from metrics.exchange import gather_steps
from metrics.meters import Mean, Smooth
from network.forecaster import huber
from parallel.gradients import GradientAverager

log = logging.getLogger("forecast.trainer")


class Trainer:
    """Trains a model on the batches of this rank, in step with the other ranks."""

    def __init__(self, model, plan, validator, callbacks, settings, world):
        self.model = model
        self.plan = plan
        self.validator = validator
        self.callbacks = callbacks
        self.settings = settings
        self.world = world
        self.optimizer = Descent(model, settings.optimizer)
        self.averager = GradientAverager(model, settings.optimizer.bucket_bytes, world)
        self.smooth = Smooth(0.9)
        self.left_out = 0

    def fit(self):
        self.world.same_start(self.model)
        steps = self.world.least(self.plan.full_batches())
        if self.plan.full_batches() > steps:
            log.debug("%d batches of this rank are left for other epochs", self.plan.full_batches() - steps)
        self.schedule = Schedule(self.settings.optimizer, steps * self.settings.epochs)
        history = []
        self.callbacks.start(self)
        for epoch in range(self.settings.epochs):
            row = self.epoch(epoch, steps)
            history.append(row)
            if self.callbacks.stops(row):
                log.info("stopped after epoch %d", epoch)
                break
        self.callbacks.end(self, history)
        return history

    def epoch(self, epoch, steps):
        self.model.train()
        losses = Mean()
        self.left_out = 0
        for step, batch in enumerate(self.plan.epoch(epoch, steps)):
            state = StepState(epoch, step, steps, samples=len(batch))
            self.callbacks.before_step(state)
            self.step(batch, state)
            if state.vetoed:
                self.left_out += 1
            else:
                losses.add(state.loss, state.samples)
                self.smooth.add(state.loss)
            self.callbacks.after_step(state)
            if (step + 1) % self.settings.report.every == 0 or state.is_last:
                state.reports = gather_steps(state, self.world)
                self.callbacks.report(state)
        result = self.validator.run(self.model)
        return EpochRow(epoch, losses.value, result.error, result.skill, self.left_out)

    def step(self, batch, state):
        self.optimizer.forget()
        loss = huber(self.model(batch.context), batch.target, batch.night)
        state.loss = float(loss.detach())
        if self.callbacks.vetoes(state):
            state.vetoed = True
            return
        loss.backward()
        self.averager.average()
        state.rate = self.schedule.rate(self.optimizer.updates)
        state.norm = self.optimizer.step(state.rate)
