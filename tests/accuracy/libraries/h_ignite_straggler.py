# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["ignite"]
# outcome = "healthy"
# source = "https://github.com/isi-nlp/rtg/issues/11"
# ///
"""Ignite run: a straggling data source, a rank that benchmarks alone, early stopping on a reduced score."""
import logging
import time
from dataclasses import dataclass

import ignite.distributed as idist
import torch
from ignite.engine import Engine, Events
from ignite.handlers import EarlyStopping
from torch import nn

log = logging.getLogger("straggler")


@dataclass
class Config:
    epochs: int = 12
    patience: int = 2
    slow_read: float = 0.8
    profile_s: float = 9.0


class Source:
    def __init__(self, cfg, rank):
        self.cfg, self.rank = cfg, rank
        self.g = torch.Generator().manual_seed(rank)

    def batches(self, n=6):
        out = []
        for _ in range(n):
            x = torch.randn(8, 6, generator=self.g)
            out.append((x, x.sum(1, keepdim=True)))
        return out

    def delay(self, iteration):
        if self.rank == 3 and iteration % 6 == 0:
            time.sleep(self.cfg.slow_read)


def profile(model, seconds):
    end, n = time.monotonic() + seconds, 0
    with torch.no_grad():
        while time.monotonic() < end:
            model(torch.randn(64, 6))
            n += 1
            time.sleep(0.001)
    return n / seconds


def training(local_rank, cfg):
    rank = idist.get_rank()
    torch.manual_seed(1)
    model = idist.auto_model(nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 1)))
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    source = Source(cfg, rank)
    held_out = source.batches(2)

    def step(engine, batch):
        source.delay(engine.state.iteration)
        opt.zero_grad()
        loss = nn.functional.mse_loss(model(batch[0]), batch[1])
        loss.backward()
        opt.step()
        return loss.item()

    trainer = Engine(step)
    evaluator = Engine(lambda e, b: nn.functional.mse_loss(model.module(b[0]), b[1]).item())

    @evaluator.on(Events.COMPLETED)
    def reduce(engine):
        engine.state.metrics["mse"] = idist.all_reduce(float(engine.state.output)) / idist.get_world_size()

    stopper = EarlyStopping(cfg.patience, lambda e: -round(e.state.metrics["mse"], 2), trainer)
    evaluator.add_event_handler(Events.COMPLETED, stopper)

    @trainer.on(Events.EPOCH_COMPLETED)
    def evaluate(engine):
        evaluator.run(held_out)

    @trainer.on(Events.EPOCH_COMPLETED(once=3))
    @idist.one_rank_only(rank=1, with_barrier=True)
    def measure(engine):
        log.info("rank 1: %.0f forwards a second", profile(model.module, cfg.profile_s))

    trainer.run(source.batches(), max_epochs=cfg.epochs)
    log.info("rank %d ended after epoch %d", rank, trainer.state.epoch)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    logging.getLogger("ignite").setLevel(logging.WARNING)
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(training, Config())
