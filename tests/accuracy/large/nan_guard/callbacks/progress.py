"""Lines about the run, written by rank 0."""

from __future__ import annotations

import logging

from callbacks.base import Callback

log = logging.getLogger("forecast.progress")


class ProgressWriter(Callback):
    """One line a report, one line an epoch, and a word on ranks that lag."""

    order = 90

    def __init__(self, settings):
        self.settings = settings
        self.lines = 0
        self.lagging = {}

    def start(self, trainer):
        log.info("%d parameters, %d buckets", trainer.model.size(), len(trainer.averager.buckets))
        if trainer.plan.lost:
            log.info("%d windows have too many gaps", trainer.plan.lost)

    def report(self, state):
        losses = [row.loss for row in state.reports if row.loss == row.loss]
        mean = sum(losses) / len(losses) if losses else float("nan")
        worst = max(state.reports, key=lambda row: row.seconds)
        usual = sorted(row.seconds for row in state.reports)[len(state.reports) // 2]
        if usual > 0 and worst.seconds > self.settings.lag_warning * usual:
            self.lagging[worst.rank] = self.lagging.get(worst.rank, 0) + 1
        bar = self.bar(state) + " " if self.settings.bar else ""
        log.info("%sepoch %d step %d/%d loss %.4f", bar, state.epoch, state.step + 1, state.steps, mean)
        self.lines += 1

    def bar(self, state, width=20):
        done = width * (state.step + 1) // state.steps
        return "".join("#" if at < done else "." for at in range(width))

    def stops(self, row):
        log.info("epoch %d: loss %.4f, error %.4f, skill %+.3f", row.epoch, row.loss, row.error, row.skill)
        if row.left_out:
            log.info("%d updates were left out", row.left_out)
        return False

    def end(self, trainer, history):
        for rank, count in sorted(self.lagging.items()):
            if count > 1:
                log.info("rank %d lagged in %d reports", rank, count)
