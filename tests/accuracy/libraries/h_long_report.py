# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# outcome = "healthy"
# ///
"""Rank 0 evaluates the model on the full test set after each epoch while the other ranks wait for it at a barrier."""
import argparse
import logging
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("train")


class TestSet:
    def __init__(self, batches, width):
        self.batches, self.width = batches, width

    def __iter__(self):
        for number in range(self.batches):
            generator = torch.Generator().manual_seed(number)
            yield torch.randn(256, self.width, generator=generator)


class Evaluator:
    def __init__(self, test, bootstrap_seconds):
        self.test, self.seconds = test, bootstrap_seconds

    @torch.no_grad()
    def scores(self, model):
        return torch.cat([model(x).squeeze(1) for x in self.test])

    def confidence_interval(self, scores):
        """Bootstrap: resample the scores until the time is used up."""
        end, means = time.monotonic() + self.seconds, []
        while time.monotonic() < end:
            picked = scores[torch.randint(0, len(scores), (len(scores),))]
            means.append(float(picked.sort().values[: len(scores) // 2].mean()))
        means.sort()
        return means[len(means) // 40], means[-len(means) // 40 - 1], len(means)

    def report(self, model, epoch):
        low, high, count = self.confidence_interval(self.scores(model))
        log.info("epoch %d: %.4f to %.4f (%d samples)", epoch, low, high, count)


class Trainer:
    def __init__(self, args):
        torch.manual_seed(0)
        self.args = args
        self.net = nn.Sequential(nn.Linear(args.width, 32), nn.ReLU(), nn.Linear(32, 1))
        self.model = DDP(self.net)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)

    def epoch(self):
        for _ in range(self.args.steps):
            loss = self.model(torch.randn(16, self.args.width)).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    def fit(self, evaluator):
        for number in range(self.args.epochs):
            self.epoch()
            if dist.get_rank() == 0:
                evaluator.report(self.net, number)
            dist.barrier()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--bootstrap-seconds", type=float, default=11.0)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format=f"[{os.environ['RANK']}] %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    Trainer(args).fit(Evaluator(TestSet(60, args.width), args.bootstrap_seconds))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
