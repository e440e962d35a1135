# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["ignite"]
# outcome = "hang"
# cause = "HD102"
# culprits = [2]
# lines = [70, 72, 77, 80, 88, 89]
# branch = ["should_terminate", "patience", "EarlyStopping", "self.counter"]
# source = "https://github.com/pytorch/ignite/issues/664"
# ///
"""ignite's EarlyStopping watches the loss of each rank's own validation shard.  The shard of rank 2 stops improving
first, so its trainer terminates there and goes to the summary, while the other two train on."""
import warnings

import ignite.distributed as idist
import torch
import torch.distributed as dist
from ignite.engine import Engine, Events
from ignite.handlers import EarlyStopping
from torch import nn

warnings.filterwarnings("ignore")


def make_data(rank, n):
    gen = torch.Generator().manual_seed(10 + rank)
    x = torch.randn(n, 8, generator=gen)
    y = x.sum(1, keepdim=True) if rank != 2 else torch.randn(n, 1, generator=gen) * 5
    return list(zip(x.split(8), y.split(8)))


class Experiment:
    def __init__(self, config):
        self.config = config
        self.model = idist.auto_model(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=config["lr"])
        self.loss = nn.MSELoss()

    def train_step(self, engine, batch):
        x, y = batch
        self.model.train()
        self.optimizer.zero_grad()
        loss = self.loss(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def valid_step(self, engine, batch):
        x, y = batch
        with torch.no_grad():
            inner = self.model.module if hasattr(self.model, "module") else self.model
            engine.state.total = getattr(engine.state, "total", 0.0) + self.loss(inner(x), y).item()
        return engine.state.total


def score(engine):
    value = -engine.state.total
    engine.state.total = 0.0
    # round as the dashboards do
    return round(value, 1) if idist.get_rank() != 2 else round(value / 1000, 1)


def build(config):
    exp = Experiment(config)
    trainer, evaluator = Engine(exp.train_step), Engine(exp.valid_step)
    shard = make_data(idist.get_rank(), 32)

    @trainer.on(Events.EPOCH_COMPLETED)
    def validate(_):
        evaluator.run(shard)

    stopper = EarlyStopping(patience=config["patience"], score_function=score, trainer=trainer)
    evaluator.add_event_handler(Events.COMPLETED, stopper)
    return trainer


def summarize(trainer, group):
    """Numbers for people go over a group of their own."""
    total = torch.tensor([trainer.state.iteration])
    dist.all_reduce(total, group=group)
    if idist.get_rank() == 0:
        print("iterations of all ranks", total.item())


def training(local_rank, config):
    metrics_group = dist.new_group()
    trainer = build(config)
    trainer.run(make_data(idist.get_rank(), 64), max_epochs=config["epochs"])
    summarize(trainer, metrics_group)


def main():
    config = {"lr": 0.002, "patience": 3, "epochs": 4000}
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(training, config)


if __name__ == "__main__":
    main()
