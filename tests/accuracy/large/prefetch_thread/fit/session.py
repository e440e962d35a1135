"""A session of training."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from feed.batching import Batch, batches
from feed.changes import Changer
from feed.prefetch import Prefetcher
from fit.curves import rate_at
from fit.tally import Tally
from journal.writer import Journal, NullJournal
from judge.panel import Panel, Verdict
from ranks.context import RankContext
from ranks.reduce import summed
from settings.model import RunSettings
from storage.reader import RecordReader
from vault.keeper import Keeper
from vision.sorter import decayed

log = logging.getLogger("sorter.fit")


@dataclass(slots=True)
class Outcome:
    """How it went."""

    best: float = 0.0
    best_step: int = -1
    judged: int = 0

    def take(self, verdict: Verdict, step: int) -> bool:
        """True where the verdict is the best so far."""
        self.judged += 1
        if self.best_step < 0 or verdict.accuracy > self.best:
            self.best, self.best_step = verdict.accuracy, step
            return True
        return False


class Session:
    """All that a run needs, and its steps."""

    def __init__(
        self,
        model: nn.Module,
        reader: RecordReader,
        panel: Panel,
        settings: RunSettings,
        context: RankContext,
        journal: Journal | NullJournal,
    ):
        self.settings = settings
        self.context = context
        self.panel = panel
        self.journal = journal
        self.reader = reader
        self.bare = model
        self.model = DistributedDataParallel(model) if context.size > 1 else model
        self.optimizer = torch.optim.AdamW(decayed(model), lr=settings.fit.rate)
        self.loss = nn.CrossEntropyLoss(label_smoothing=settings.fit.smooth)
        self.tally = Tally()

    def feed(self) -> Prefetcher:
        """The prefetcher of this rank."""
        feed = self.settings.feed
        changer = Changer(feed, seed=self.settings.seed * 10 + self.context.rank)
        return Prefetcher(batches(self.reader, feed, changer), feed.depth, feed.starved_after)

    def run(self, keeper: Keeper) -> Outcome:
        """All steps, judged now and then."""
        fit, outcome = self.settings.fit, Outcome()
        with self.feed() as prefetcher:
            for step in range(fit.steps):
                loss = self.step(next(prefetcher), step)
                if self.context.leads and (step + 1) % fit.log_every == 0:
                    weakest = self.tally.weakest()
                    self.journal.note("step", step=step, loss=loss, mean=self.tally.mean, weakest=weakest)
                is_last = step + 1 == fit.steps
                if (step + 1) % fit.judge_every == 0 or is_last:
                    verdict = self.panel.judge(self.bare)
                    better = outcome.take(verdict, step)
                    keeper.keep(self.bare, step, best=better)
                    self.journal.note("judged", step=step, accuracy=verdict.accuracy, better=better)
        self.close(prefetcher)
        return outcome

    def step(self, batch: Batch, step: int) -> float:
        """One update. A collective: DDP averages the gradients."""
        rate = rate_at(step, self.settings.fit)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        scores = self.model(batch.pictures)
        loss = self.loss(scores, batch.kinds)
        self.optimizer.zero_grad()
        loss.backward()
        if self.settings.fit.clip > 0:
            nn.utils.clip_grad_norm_(self.bare.parameters(), self.settings.fit.clip)
        self.optimizer.step()
        if batch.resized:
            self.tally.resized += batch.resized
        value = loss.item()
        self.tally.add(value, scores.argmax(1).tolist(), batch.kinds.tolist())
        return value

    def close(self, prefetcher: Prefetcher) -> None:
        """Add up what the ranks counted. A collective."""
        counts = {
            "starved": float(prefetcher.starved),
            "damaged": float(len(self.reader.damaged)),
            "rises": float(self.tally.rises),
            "resized": float(self.tally.resized),
        }
        for name, value in summed(counts, self.context).items():
            if value and self.context.leads:
                log.info("%s: %d", name, value)
        if self.reader.rounds > 1:
            log.info("went round the pack %d times", self.reader.rounds)
