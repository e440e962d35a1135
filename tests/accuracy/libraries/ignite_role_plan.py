# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["ignite"]
# outcome = "hang"
# causes_any = ["HD109", "HD101"]
# culprits = [0]
# lines = [93, 96, 114, 115]
# branch = ["idist.get_rank() == 0", "PLAN[role]"]
# source = "https://github.com/pytorch/ignite/issues/1203"
# ///
"""Ignite training of a spectrogram classifier. What is attached to the trainer comes from a table by role; the evaluator with
its metrics is part of the main process's plan."""
import logging
import os
from dataclasses import dataclass

import ignite.distributed as idist
import torch
import torch.nn as nn
import torch.nn.functional as F
from ignite.engine import Engine, Events
from ignite.handlers import Checkpoint, DiskSaver
from ignite.metrics import Accuracy, Loss
from torch.utils.data import TensorDataset

log = logging.getLogger("spectro")


@dataclass
class Setup:
    bins: int = 20
    classes: int = 4
    hidden: int = 16
    epochs: int = 4
    validate_every: int = 2
    lr: float = 0.02


def clips(n, s, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, s.bins, generator=g)
    return TensorDataset(x, x[:, : s.classes].argmax(1))


class Classifier(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(s.bins, s.hidden), nn.BatchNorm1d(s.hidden), nn.ReLU())
        self.logits = nn.Linear(s.hidden, s.classes)

    def forward(self, x):
        return self.logits(self.features(x))


def make_trainer(model, optimizer):
    def step(engine, batch):
        model.train()
        x, y = batch
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return Engine(step)


def make_evaluator(model):
    network = model.module

    @torch.no_grad()
    def step(engine, batch):
        network.eval()
        x, y = batch
        return network(x), y

    engine = Engine(step)
    Accuracy().attach(engine, "accuracy")
    Loss(F.cross_entropy).attach(engine, "loss")
    return engine


def attach_logging(trainer, job):
    @trainer.on(Events.EPOCH_COMPLETED)
    def _(engine):
        log.info("[%d] epoch %d loss %.3f", idist.get_rank(), engine.state.epoch, engine.state.output)


def attach_validation(trainer, job):
    evaluator = make_evaluator(job["model"])

    def run_validation(engine):
        evaluator.run(job["val_loader"])
        log.info("validation %s", {k: round(v, 3) for k, v in evaluator.state.metrics.items()})

    trainer.add_event_handler(Events.EPOCH_COMPLETED(every=job["setup"].validate_every), run_validation)


def attach_schedule(trainer, job):
    scheduler = torch.optim.lr_scheduler.ExponentialLR(job["optimizer"], 0.9)
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda engine: scheduler.step())


PLAN = {"main": [attach_schedule, attach_logging, attach_validation], "worker": [attach_schedule]}


def training(local_rank, setup):
    torch.manual_seed(4)
    model = idist.auto_model(Classifier(setup))
    optimizer = idist.auto_optim(torch.optim.SGD(model.parameters(), lr=setup.lr))
    job = {"setup": setup, "model": model, "optimizer": optimizer,
           "val_loader": idist.auto_dataloader(clips(96, setup, 2), batch_size=8)}
    trainer = make_trainer(model, optimizer)
    role = "main" if idist.get_rank() == 0 else "worker"
    for attach in PLAN[role]:
        attach(trainer, job)
    trainer.run(idist.auto_dataloader(clips(192, setup, 1), batch_size=16, shuffle=True, drop_last=True), max_epochs=setup.epochs)
    idist.barrier()


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    with idist.Parallel(backend="gloo") as parallel:
        parallel.run(training, Setup())


if __name__ == "__main__":
    main()
