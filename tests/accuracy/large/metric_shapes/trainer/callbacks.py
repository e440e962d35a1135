"""What else happens around the steps."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

from distributed.agree import from_first
from metrics.report import line

if TYPE_CHECKING:
    from data.batches import Batch
    from trainer.loop import Trainer

LOG = logging.getLogger("tagger.train")


class Callback:
    def after_step(self, trainer: Trainer, batch: Batch, loss: float) -> None:
        """Called on every rank with its own batch and loss."""

    def after_epoch(self, trainer: Trainer, values: dict[str, float]) -> None:
        """Called on every rank with the values of all."""


class CallbackList:
    def __init__(self, callbacks: list[Callback]) -> None:
        self.callbacks = callbacks

    def add(self, callback: Callback) -> None:
        self.callbacks.append(callback)

    def after_step(self, trainer: Trainer, batch: Batch, loss: float) -> None:
        for callback in self.callbacks:
            callback.after_step(trainer, batch, loss)

    def after_epoch(self, trainer: Trainer, values: dict[str, float]) -> None:
        for callback in self.callbacks:
            callback.after_epoch(trainer, values)


class ProgressLog(Callback):
    def __init__(self, every: int) -> None:
        self.every = every
        self.smooth: float | None = None
        self.before: dict[str, float] | None = None
        self.peaks = 0

    def after_step(self, trainer: Trainer, batch: Batch, loss: float) -> None:
        if self.smooth is not None and loss > 1.5 * self.smooth:
            self.peaks += 1
        self.smooth = loss if self.smooth is None else 0.9 * self.smooth + 0.1 * loss
        if self.every and trainer.step % self.every == 0 and trainer.ranks.is_first:
            LOG.info("step %d: loss %.3f, %d texts", trainer.step, self.smooth, len(batch))

    def after_epoch(self, trainer: Trainer, values: dict[str, float]) -> None:
        if trainer.ranks.is_first:
            LOG.info("epoch %d: %s", trainer.epoch, line(values, self.before))
        if self.peaks > 5 and trainer.settings.run.verbose:
            LOG.debug("%d steps with a loss far above the usual one", self.peaks)
        self.before = values


class RareTagWatch(Callback):
    """Notices tags that this rank has not seen for a while."""

    def __init__(self, tags: int) -> None:
        self.tags = tags
        self.last_seen: dict[int, int] = {}
        self.droughts: Counter[int] = Counter()

    def after_step(self, trainer: Trainer, batch: Batch, loss: float) -> None:
        present = set(batch.tags.tolist())
        for tag in range(self.tags):
            if tag in present:
                self.last_seen[tag] = trainer.step
            elif trainer.step - self.last_seen.get(tag, 0) > 3:
                self.droughts[tag] += 1

    def after_epoch(self, trainer: Trainer, values: dict[str, float]) -> None:
        longest = self.droughts.most_common(1)
        if longest and longest[0][1] > 6:
            LOG.debug("tag %d is seldom on this rank", longest[0][0])
        self.droughts.clear()


class EarlyStopping(Callback):
    """Stops when f1 has not become better for some epochs; the first rank decides."""

    def __init__(self, patience: int, min_delta: float) -> None:
        self.patience = patience
        self.min_delta = min_delta
        self.best = float("-inf")
        self.bad = 0

    def after_epoch(self, trainer: Trainer, values: dict[str, float]) -> None:
        if values["f1"] > self.best + self.min_delta:
            self.best, self.bad = values["f1"], 0
        else:
            self.bad += 1
        if from_first(self.bad) >= self.patience:
            trainer.stop = True
