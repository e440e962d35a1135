# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["ignite"]
# outcome = "hang"
# causes_any = ["HD109", "HD101", "HD106"]
# culprits_any = [[1], [0, 2]]
# lines = [38, 40, 42, 45, 68]
# branch = ["score <= self.best_score"]
# source = "https://github.com/pytorch/ignite/issues/2623"
# ///
import logging
import os
import tempfile

import ignite.distributed as idist
import torch
import torch.distributed as dist
import torch.nn as nn
from ignite.engine import Engine, Events
from ignite.metrics import RunningAverage
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset

logging.basicConfig(level=logging.WARNING, format="%(asctime)s [r" + os.environ["RANK"] + "] %(message)s")
log = logging.getLogger("zero")
log.setLevel(logging.INFO)


class BestKeeper:
    """Keeps the weights and the optimizer's state of the best epoch so far."""

    def __init__(self, folder, model, optimizer, to=0):
        self.folder, self.model, self.optimizer, self.to = folder, model, optimizer, to
        self.best_score = float("-inf")

    def offer(self, epoch, score):
        if score <= self.best_score:
            log.info("epoch %d: %.4f is no improvement", epoch, score)
            return
        self.best_score = score
        self._store(epoch)

    def _store(self, epoch):
        self.optimizer.consolidate_state_dict(to=self.to)
        if idist.get_rank() == self.to:
            payload = {"model": self.model.module.state_dict(), "optim": self.optimizer.state_dict()}
            torch.save(payload, os.path.join(self.folder, f"best_{epoch}.pt"))
            log.info("kept epoch %d", epoch)


def make_data(rank, site_offsets=(0.0, 2.0, 0.1)):
    """Every rank reads the records of its own site."""
    gen = torch.Generator().manual_seed(40 + rank)
    x = torch.randn(96, 10, generator=gen)
    y = x[:, :3].sum(1, keepdim=True)
    train = TensorDataset(x[:64], y[:64])
    valid = TensorDataset(x[64:], y[64:] * (1 - site_offsets[rank]))
    return DataLoader(train, batch_size=8), DataLoader(valid, batch_size=16)


def make_trainer(model, optimizer):
    def update(engine, batch):
        x, y = batch
        model.train()
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return Engine(update)


def make_evaluator(model):
    @torch.no_grad()
    def infer(engine, batch):
        x, y = batch
        err = nn.functional.mse_loss(model.module(x), y).item()
        engine.state.total = getattr(engine.state, "total", 0.0) + err
        return err

    evaluator = Engine(infer)

    @evaluator.on(Events.STARTED)
    def reset(engine):
        engine.state.total = 0.0

    return evaluator


def main():
    idist.initialize("gloo")
    rank = idist.get_rank()
    torch.manual_seed(2)
    model = DDP(nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 1)))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=5e-3)
    train_loader, valid_loader = make_data(rank)
    trainer, evaluator = make_trainer(model, optimizer), make_evaluator(model)
    folder = os.path.join(tempfile.gettempdir(), f"zero_{os.environ['MASTER_PORT']}")
    os.makedirs(folder, exist_ok=True)
    keeper = BestKeeper(folder, model, optimizer)

    @trainer.on(Events.EPOCH_COMPLETED)
    def validate(engine):
        state = evaluator.run(valid_loader)
        keeper.offer(engine.state.epoch, -state.total / len(valid_loader))

    trainer.run(train_loader, max_epochs=8)
    dist.barrier()
    idist.finalize()


if __name__ == "__main__":
    main()
