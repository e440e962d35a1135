# /// hangdoc
# launch = "python"
# requires = ["ignite"]
# outcome = "hang"
# causes_any = ["HD102", "HD101", "HD106"]
# culprits = [1]
# lines = [78, 98, 101, 110, 120, 121]
# branch = ["no_improvement", "self.counter >= self.patience", "self.should_terminate"]
# source = "https://github.com/LBANN/lbann/issues/34"
# ///
"""Trains one model of an ensemble per rank with ignite engines; early stopping watches each model, a summary goes over the whole ensemble every epoch."""
import logging
import os
import tempfile

import torch
import torch._dynamo  # noqa: F401  (once, before the workers fork)
import torch.distributed as dist
import torch.multiprocessing as mp
from ignite.engine import Engine, Events
from ignite.handlers import EarlyStopping
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

log = logging.getLogger("ensemble")
MEMBERS = 4
RATES = (0.01, 0.35, 0.02, 0.04)


def member_data(member):
    gen = torch.Generator().manual_seed(77)
    x = torch.randn(160, 10, generator=gen)
    y = torch.sin(x[:, :1]) + 0.3 * x[:, 1:2] * x[:, 2:3]
    pick = torch.randperm(160, generator=torch.Generator().manual_seed(member))
    train, valid = pick[:120], pick[120:]
    return TensorDataset(x[train], y[train]), TensorDataset(x[valid], y[valid])


class Member:
    """One model with its trainer and evaluator."""

    def __init__(self, number):
        self.number = number
        torch.manual_seed(number)
        self.model = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=RATES[number], momentum=0.9)
        train, valid = member_data(number)
        gen = torch.Generator().manual_seed(number)
        self.train_loader = DataLoader(train, batch_size=20, shuffle=True, generator=gen)
        self.valid_loader = DataLoader(valid, batch_size=40)
        self.trainer, self.evaluator = Engine(self.update), Engine(self.evaluate)
        self.valid_loss = float("nan")

    def update(self, engine, batch):
        x, y = batch
        loss = nn.functional.mse_loss(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def evaluate(self, engine, batch):
        x, y = batch
        return nn.functional.mse_loss(self.model(x), y).item()


class EnsembleSummary:
    """Mean and spread of the members' validation losses."""

    def __init__(self, member):
        self.member = member
        self.history = []

    def __call__(self, engine):
        losses = torch.zeros(MEMBERS)
        losses[self.member.number] = self.member.valid_loss
        dist.all_reduce(losses)
        self.history.append((losses.mean().item(), losses.std().item()))
        if self.member.number == 0:
            log.info("epoch %d mean %.4f spread %.4f", engine.state.epoch, *self.history[-1])


def local_mean(values):
    return sum(values) / len(values)


def attach(member, max_patience=4):
    outputs = []

    @member.evaluator.on(Events.ITERATION_COMPLETED)
    def keep(engine):
        outputs.append(engine.state.output)

    @member.trainer.on(Events.EPOCH_COMPLETED)
    def validate(engine):
        outputs.clear()
        member.evaluator.run(member.valid_loader)
        member.valid_loss = local_mean(outputs)

    stopper = EarlyStopping(patience=max_patience, score_function=lambda engine: -local_mean(outputs),
                            trainer=member.trainer, min_delta=1e-4)
    member.evaluator.add_event_handler(Events.COMPLETED, stopper)
    member.trainer.add_event_handler(Events.EPOCH_COMPLETED, EnsembleSummary(member))


def weights_of_ensemble(member):
    flat = torch.nn.utils.parameters_to_vector(member.model.parameters()).detach()
    parts = [torch.empty_like(flat) for _ in range(MEMBERS)]
    dist.all_gather(parts, flat)
    return torch.stack(parts)


def worker(rank, rendezvous):
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=MEMBERS)
    logging.basicConfig(level=logging.INFO, format=f"[{rank}] %(name)s %(message)s")
    logging.getLogger("ignite").setLevel(logging.WARNING)
    member = Member(rank)
    attach(member)
    member.trainer.run(member.train_loader, max_epochs=60)
    weights = weights_of_ensemble(member)
    log.info("ensemble weights %s", tuple(weights.shape))
    dist.destroy_process_group()


def main():
    run_dir = tempfile.mkdtemp(prefix="ensemble-", dir=os.environ.get("TMPDIR", tempfile.gettempdir()))
    mp.start_processes(worker, args=(os.path.join(run_dir, "rendezvous"),), nprocs=MEMBERS, start_method="fork")


if __name__ == "__main__":
    main()
