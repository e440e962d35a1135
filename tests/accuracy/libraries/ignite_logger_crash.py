# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["ignite"]
# outcome = "crashed"
# cause = "HD401"
# culprits = [2]
# lines = [25, 35, 63, 65, 73]
# source = "https://github.com/pytorch/ignite/issues/3476"
# ///
"""The metrics writer that is attached to one rank of an ignite job raises KeyError; idist.Parallel closes the group
while the exception goes up, and a slow upload follows.  The other ranks fail meanwhile with "Connection closed by peer"."""
import time

import ignite.distributed as idist
import torch
from ignite.engine import Engine, Events
from torch import nn


class BucketTable:
    def __init__(self):
        self.table = {i: f"bucket-{i}" for i in range(6)}

    def add(self, value):
        row = self.table[value]
        return row


class MetricsLogger:
    def __init__(self):
        self.writer = BucketTable()
        self.rows = []

    def log(self, engine):
        self.rows.append(self.writer.add(engine.state.iteration // 5))

    def close(self):
        """Uploads what there is."""
        time.sleep(2)


def make_step(model, optimizer):
    def step(engine, batch):
        loss = (model(batch) - batch).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def training(local_rank, config):
    torch.manual_seed(local_rank)
    model = idist.auto_model(nn.Linear(8, 8))
    trainer = Engine(make_step(model, torch.optim.SGD(model.parameters(), config["lr"])))
    logger = None
    if idist.get_rank() == config["log_rank"]:
        logger = MetricsLogger()

        @trainer.on(Events.ITERATION_COMPLETED(every=5))
        def _(engine):
            logger.log(engine)

    trainer.run([torch.randn(4, 8) for _ in range(40)], max_epochs=10)


def run(config):
    uploader = MetricsLogger()
    try:
        with idist.Parallel(backend="gloo") as parallel:
            try:
                parallel.run(training, config)
            except Exception:
                idist.finalize()
                raise
    finally:
        uploader.close()


if __name__ == "__main__":
    run({"lr": 0.01, "log_rank": 2})
