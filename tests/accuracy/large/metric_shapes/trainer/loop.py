"""Epochs of steps, each followed by a validation."""

from __future__ import annotations

import gc
import logging
import math
import time
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from config.schema import Settings
from data.batches import Batch, BatchStream
from data.corpus import Shard
from distributed.agree import anybody
from distributed.setup import Ranks
from evaluation.validate import validate
from trainer.callbacks import CallbackList
from trainer.checkpoint import CheckpointFolder
from trainer.optimizer import Schedule

LOG = logging.getLogger("tagger.train")


@dataclass
class Timers:
    """Where the time of this rank goes."""

    data: float = 0.0
    compute: float = 0.0
    slow_steps: int = 0
    longest: float = 0.0

    def add(self, data: float, compute: float) -> None:
        self.data += data
        self.compute += compute
        self.longest = max(self.longest, data + compute)
        if data > compute:
            self.slow_steps += 1


@dataclass
class Trainer:
    settings: Settings
    ranks: Ranks
    model: nn.Module
    optimizer: torch.optim.Optimizer
    schedule: Schedule
    stream: BatchStream
    valid: Shard
    callbacks: CallbackList
    folder: CheckpointFolder
    step: int = 0
    epoch: int = 0
    stop: bool = False
    skipped: int = 0
    timers: Timers = field(default_factory=Timers)

    def __post_init__(self) -> None:
        self.wrapped: nn.Module | None = DistributedDataParallel(self.model)

    def fit(self) -> list[dict[str, float]]:
        history = []
        while self.epoch < self.settings.run.epochs and not self.stop:
            self.train_epoch()
            values = validate(self.model, self.valid, self.settings, self.ranks, self.stream.examples)
            values["epoch"] = self.epoch
            history.append(values)
            if self.folder.save(self.model, self.epoch, values["f1"]) and self.settings.run.verbose:
                LOG.debug("checkpoint of epoch %d", self.epoch)
            self.callbacks.after_epoch(self, values)
            self.epoch += 1
        return history

    def train_epoch(self) -> None:
        assert self.wrapped is not None
        self.wrapped.train()
        for _ in range(self.settings.run.steps):
            begin = time.perf_counter()
            batch = self.stream.next()
            loaded = time.perf_counter()
            loss = self.one_step(batch)
            self.timers.add(loaded - begin, time.perf_counter() - loaded)
            self.step += 1
            self.callbacks.after_step(self, batch, loss)
        if self.stream.wasteful > self.settings.run.steps:
            LOG.debug("%d batches of mostly padding", self.stream.wasteful)
        if anybody(self.skipped > 3):
            LOG.warning("several steps were skipped")

    def one_step(self, batch: Batch) -> float:
        assert self.wrapped is not None
        self.schedule.step()
        scores = self.wrapped(batch.tokens)
        loss = self.weighted_loss(scores, batch)
        self.optimizer.zero_grad()
        loss.backward()
        clip = self.settings.optimizer.clip
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), clip) if clip is not None else None
        # The gradients are averages over all ranks by now, so that all ranks skip the same steps.
        if norm is not None and not math.isfinite(float(norm)):
            self.skipped += 1
            return float("nan")
        self.optimizer.step()
        return float(loss.detach())

    def weighted_loss(self, scores: torch.Tensor, batch: Batch) -> torch.Tensor:
        losses = nn.functional.cross_entropy(scores, batch.tags, reduction="none", label_smoothing=0.05)
        if bool(batch.rare.any()):
            losses = torch.where(batch.rare, 1.5 * losses, losses)
        outliers = losses > 3 * losses.median()
        if 0 < int(outliers.sum()) < len(batch) // 2:
            losses = torch.where(outliers, losses.detach() * 0 + losses.clamp(max=4.0), losses)
        return losses.mean()

    def close(self) -> None:
        """Let go of DDP before the group is destroyed."""
        self.folder.close()
        self.wrapped = None
        gc.collect()
        if self.ranks.is_first_of_host:
            LOG.info("data %.1f s, compute %.1f s, longest step %.2f s", *self.times())

    def times(self) -> tuple[float, float, float]:
        return self.timers.data, self.timers.compute, self.timers.longest
