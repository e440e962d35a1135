# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["ignite"]
# outcome = "hang"
# causes_any = ["HD102", "HD101", "HD110", "HD109"]
# culprits_any = [[0], [1, 2]]
# lines = [42]
# branch = ["self.spent() >= self.seconds"]
# source = "https://github.com/pytorch/ignite/issues/3841"
# ///
"""Night job: train an ignite engine within a fixed budget of seconds."""
import logging
import os
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import ignite.distributed as idist
import torch
from ignite.engine import Engine, Events
from ignite.metrics import RunningAverage
from torch import nn
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("nightly")


@dataclass
class Budget:
    """How long the job may train, counted from its creation."""
    seconds: float
    started: float = field(default_factory=time.monotonic)

    def spent(self):
        return time.monotonic() - self.started

    def attach(self, engine):
        engine.add_event_handler(Events.ITERATION_COMPLETED(every=5), self.check)

    def check(self, engine):
        if self.spent() >= self.seconds:
            log.info("budget used up after %d iterations", engine.state.iteration)
            engine.terminate()


class Tiles(Dataset):
    """Spectral tiles; the statistics are computed once and kept beside the data."""

    def __init__(self, folder, count=4096):
        g = torch.Generator().manual_seed(5)
        self.tiles = torch.randn(count, 20, generator=g)
        self.target = self.tiles[:, :4].sum(-1, keepdim=True)
        self.mean, self.std = self.statistics(Path(folder) / "stats.pt")

    def statistics(self, cache):
        if cache.exists():
            return torch.load(cache)
        parts = []
        for chunk in self.tiles.chunk(64):
            parts.append(torch.stack([chunk.mean(0), chunk.std(0)]))
            time.sleep(0.06)
        stats = torch.stack(parts).mean(0)
        torch.save(stats, cache)
        return stats

    def __len__(self):
        return len(self.tiles)

    def __getitem__(self, i):
        return (self.tiles[i] - self.mean) / self.std, self.target[i]


def prepare(folder):
    if idist.get_rank() > 0:
        idist.barrier()
    budget = Budget(seconds=6.0)
    data = Tiles(folder)
    if idist.get_rank() == 0:
        idist.barrier()
    return data, budget


def make_trainer(model, optimizer, lossfn):
    def step(engine, batch):
        model.train()
        x, y = batch
        optimizer.zero_grad()
        loss = lossfn(model(x), y)
        loss.backward()
        optimizer.step()
        time.sleep(0.01)
        return loss.item()

    trainer = Engine(step)
    RunningAverage(output_transform=lambda v: v).attach(trainer, "loss")
    return trainer


def run(local_rank, folder):
    data, budget = prepare(folder)
    loader = idist.auto_dataloader(data, batch_size=24, shuffle=True)
    model = idist.auto_model(nn.Sequential(nn.Linear(20, 32), nn.GELU(), nn.Linear(32, 1)))
    optimizer = idist.auto_optim(torch.optim.AdamW(model.parameters(), lr=1e-3))
    trainer = make_trainer(model, optimizer, nn.MSELoss())
    budget.attach(trainer)

    @trainer.on(Events.EPOCH_COMPLETED)
    def report(engine):
        log.info("epoch %d loss %.4f", engine.state.epoch, engine.state.metrics["loss"])

    trainer.run(loader, max_epochs=200)
    idist.barrier()
    if idist.get_rank() == 0:
        torch.save(model.state_dict(), Path(folder) / "model.pt")
    log.info("stopped after %d iterations", trainer.state.iteration)


def main():
    logging.basicConfig(level=logging.INFO)
    logging.getLogger("ignite").setLevel(logging.ERROR)
    folder = Path(tempfile.gettempdir()) / f"tiles-{os.environ['MASTER_PORT']}"
    folder.mkdir(exist_ok=True)
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(run, str(folder))


if __name__ == "__main__":
    main()
