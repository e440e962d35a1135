# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["ignite"]
# outcome = "hang"
# causes_any = ["HD101", "HD109"]
# culprits = [0]
# culprits_any = [[1, 2]]
# lines = [113, 84, 118, 107]
# branch = ["book.best_epoch == engine.state.epoch", "score >= book.best", "rank == 0"]
# source = "https://github.com/LibreYOLO/libreyolo/pull/782"
# ///
"""Ignite training of a small conv net; the best weights are kept and their batch statistics refreshed at the end."""
import logging
import os
import tempfile
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import ignite.distributed as idist
import torch
import torch.nn as nn
from ignite.engine import Engine, Events
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
log = logging.getLogger("texture")


@dataclass
class BestBook:
    best: float = -1.0
    best_epoch: int = 0
    weights: dict = field(default_factory=dict)


def textures(seed, size=96):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 2, (size,), generator=g)
    x = torch.randn(size, 1, 8, 8, generator=g)
    x[:, :, ::2] += 0.8 * y.view(-1, 1, 1, 1)
    return TensorDataset(x, y)


def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
                         nn.Linear(16, 2))


def make_trainer(model, lr):
    def update(engine, batch):
        x, y = batch
        loss = nn.functional.cross_entropy(model(x), y)
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                idist.all_reduce(p.grad)
                p -= lr * p.grad / idist.get_world_size()
        return loss.item()

    return Engine(update)


@torch.no_grad()
def accuracy(model, data):
    model.eval()
    x, y = data.tensors
    right = (model(x).argmax(1) == y).float().mean().item()
    model.train()
    return right


def refresh_statistics(model, loader):
    """Averages the running statistics of all batch norms over fresh passes of all processes."""
    layers = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    for layer in layers:
        layer.reset_running_stats()
    with torch.no_grad():
        for x, _ in loader:
            model(x)
    for layer in layers:
        idist.all_reduce(layer.running_mean)
        idist.all_reduce(layer.running_var)
        layer.running_mean /= idist.get_world_size()
        layer.running_var /= idist.get_world_size()


def training(local_rank, config):
    rank = idist.get_rank()
    logging.basicConfig(level=logging.WARNING, format=f"r{rank} %(message)s")
    log.setLevel(logging.INFO)
    root = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "texture"
    root.mkdir(parents=True, exist_ok=True)
    model, book = build(), BestBook()
    loader = DataLoader(textures(10 + rank), batch_size=16)
    held_out = textures(99)
    trainer = make_trainer(model, config["lr"])

    if rank == 0:
        @trainer.on(Events.EPOCH_COMPLETED)
        def evaluate(engine):
            score = accuracy(model, held_out)
            log.info("epoch %d accuracy %.3f", engine.state.epoch, score)
            if score >= book.best:
                book.best, book.best_epoch = score, engine.state.epoch
                book.weights = {k: v.clone() for k, v in model.state_dict().items()}
                torch.save(book.weights, root / "best.pt")

    @trainer.on(Events.COMPLETED)
    def finish(engine):
        if book.best_epoch == engine.state.epoch:
            log.info("the last epoch is the best one, its statistics are fresh")
        else:
            refresh_statistics(model, loader)
            torch.save(model.state_dict(), root / f"refreshed-{rank}.pt")
        idist.barrier()  # the files are complete

    trainer.run(loader, max_epochs=config["epochs"])


if __name__ == "__main__":
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(training, {"lr": 0.2, "epochs": 6})
