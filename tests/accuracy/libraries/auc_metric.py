# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD103", "HD101"]
# culprits = [2]
# lines = [25, 26, 51, 52, 53, 55, 59, 77, 86, 92]
# branch = ["not len(positive) or not len(negative)"]
# source = "Project-MONAI/MONAI#1531, NVIDIA-NeMo/Automodel#2468 (a rank-local exception caught around a collective)"
# ///
"""Fraud scoring; the area under the curve is tracked on the validation part every few steps."""
import argparse
import logging
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("fraud")


def area_under_curve(scores, labels):
    positive, negative = scores[labels == 1], scores[labels == 0]
    if not len(positive) or not len(negative):
        raise ValueError("one class only")
    wins = (positive.unsqueeze(1) > negative.unsqueeze(0)).double()
    return wins.mean()


class Table:
    """Transactions by region; some regions see hardly any fraud."""

    def __init__(self, rank, count=256, width=10):
        generator = torch.Generator().manual_seed(rank)
        self.x = torch.randn(count, width, generator=generator)
        threshold = (1.0, 1.2, 2.6, 0.9)[rank % 4]
        self.y = (self.x[:, 0] + 0.2 * self.x[:, 1] > threshold).float()

    def batch(self, step, size):
        start = step * size % (len(self.x) - size)
        return self.x[start:start + size], self.y[start:start + size]


class Metric:
    def __init__(self, name, function):
        self.name, self.function, self.values = name, function, []

    def update(self, scores, labels):
        try:
            value = self.function(scores, labels)
            self.values.append(self.mean_of_all(value))
        except ValueError as error:
            log.debug("%s not defined: %s", self.name, error)
            self.values.append(float("nan"))

    def mean_of_all(self, value):
        parts = [torch.zeros((), dtype=torch.float64) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, value)
        return torch.stack(parts).mean().item()


class Experiment:
    def __init__(self, args, rank):
        self.args, self.rank = args, rank
        torch.manual_seed(0)
        self.model = DDP(nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 1)))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=5e-3)
        self.train, self.valid = Table(rank), Table(rank, 400)
        self.metrics = [Metric("auc", area_under_curve)]
        self.criterion = nn.BCEWithLogitsLoss()

    def fit(self, step):
        x, y = self.train.batch(step, self.args.batch_size)
        loss = self.criterion(self.model(x).squeeze(1), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def evaluate(self, step):
        x, y = self.valid.batch(step, self.args.valid_size)
        scores = self.model.module(x).squeeze(1)
        for metric in self.metrics:
            metric.update(scores, y)

    def run(self):
        for step in range(1, self.args.steps + 1):
            loss = self.fit(step)
            if step % self.args.every == 0:
                self.evaluate(step)
                if self.rank == 0:
                    log.info("step %d loss %.4f auc %.3f", step, loss, self.metrics[0].values[-1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--valid-size", type=int, default=120)
    parser.add_argument("--every", type=int, default=5)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format=f"[{os.environ['RANK']}] %(message)s")
    dist.init_process_group("gloo")
    Experiment(args, dist.get_rank()).run()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
