# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["deepspeed"]
# outcome = "hang"
# causes_any = ["HD101", "HD109", "HD106"]
# culprits_any = [[1], [0, 2]]
# lines = [43, 112, 113]
# branch = ["self.checkpointer.due(epoch, self.tracker)", "tracker.is_best_so_far()", "self.last == self.best", "epoch % self.every == 0 and tracker.is_best_so_far()"]
# source = "https://github.com/allenai/allennlp/pull/4693"
# ///
"""Small trainer around a DeepSpeed engine with a metric tracker and a checkpointer."""
import logging
import os
import tempfile
from dataclasses import dataclass

import deepspeed
import torch
from torch import nn

log = logging.getLogger("trainer")


@dataclass
class Params:
    epochs: int = 8
    steps: int = 12
    batch: int = 16
    every: int = 2


class MetricTracker:
    def __init__(self):
        self.best = None
        self.last = None

    def add(self, value):
        self.last = value
        if self.best is None or value < self.best:
            self.best = value

    def is_best_so_far(self):
        return self.last == self.best


class Checkpointer:
    def __init__(self, folder, every):
        self.folder = folder
        self.every = every

    def due(self, epoch, tracker):
        return epoch % self.every == 0 and tracker.is_best_so_far()

    def save(self, engine, epoch):
        engine.save_checkpoint(self.folder, tag=f"epoch{epoch}")


class Reader:
    """Each worker reads its own region of the survey."""

    DRIFT = {1: 0.5, 4: 0.3}

    def __init__(self, region, params):
        self.g = torch.Generator().manual_seed(50 + region)
        self.region = region
        self.params = params
        self.drift = self.DRIFT.get(region, 0.0)
        self.weights = torch.linspace(-1, 1, 10)

    def draw(self, noise):
        x = torch.randn(self.params.batch, 10, generator=self.g)
        y = x @ self.weights + noise * torch.randn(self.params.batch, generator=self.g)
        return x, y.unsqueeze(-1)

    def train(self):
        for _ in range(self.params.steps):
            yield self.draw(0.1)

    def held_out(self, epoch):
        x, y = self.draw(0.1)
        return x, y + self.drift * max(0, epoch - 4)


class Trainer:
    def __init__(self, engine, reader, checkpointer, params):
        self.engine = engine
        self.reader = reader
        self.checkpointer = checkpointer
        self.params = params
        self.tracker = MetricTracker()
        self.lossfn = nn.MSELoss()

    def train_epoch(self):
        self.engine.train()
        for x, y in self.reader.train():
            loss = self.lossfn(self.engine(x), y)
            self.engine.backward(loss)
            self.engine.step()
        return float(loss)

    @torch.no_grad()
    def validate(self, epoch):
        self.engine.eval()
        x, y = self.reader.held_out(epoch)
        return float(self.lossfn(self.engine(x), y))

    def run(self):
        for epoch in range(self.params.epochs):
            train = self.train_epoch()
            self.tracker.add(self.validate(epoch))
            log.info("epoch %d train %.4f held-out %.4f", epoch, train, self.tracker.last)
            if self.checkpointer.due(epoch, self.tracker):
                self.checkpointer.save(self.engine, epoch)


def main():
    logging.basicConfig(level=logging.INFO)
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed(dist_backend="gloo")
    params = Params()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 1))
    config = {"train_micro_batch_size_per_gpu": params.batch, "gradient_accumulation_steps": 1,
              "steps_per_print": 10000, "zero_optimization": {"stage": 0}}
    engine, _, _, _ = deepspeed.initialize(model=model, config=config,
                                           optimizer=torch.optim.SGD(model.parameters(), lr=5e-3))
    folder = os.path.join(tempfile.gettempdir(), f"survey-{os.environ['MASTER_PORT']}")
    reader = Reader(int(os.environ["RANK"]), params)
    Trainer(engine, reader, Checkpointer(folder, params.every), params).run()
    torch.distributed.barrier()
    log.info("all epochs done")


if __name__ == "__main__":
    main()
