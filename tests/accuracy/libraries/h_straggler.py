# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 6"
# outcome = "healthy"
# source = "https://github.com/bigscience-workshop/Megatron-DeepSpeed/pull/177"
# ///
"""One rank's augmentation is thirty times slower than the others' for three steps (ten seconds each), alternating with normal ones."""
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn


@dataclass
class Slow:
    rank: int = 4
    steps: tuple = (3, 5, 7)
    seconds: float = 11.0


class Augment:
    def __init__(self, slow, rank):
        self.slow, self.rank = slow, rank

    def elastic(self, image):
        for _ in range(20):
            image = torch.nn.functional.avg_pool2d(image, 3, 1, 1)
        return image

    def __call__(self, image, step):
        seconds = self.slow.seconds if (self.rank == self.slow.rank and step in self.slow.steps) else 0.0
        end = time.monotonic() + seconds
        image = self.elastic(image)
        while time.monotonic() < end:
            image = self.elastic(image)
        return image


class Trainer:
    def __init__(self):
        self.augment = Augment(Slow(), dist.get_rank())
        self.model = nn.parallel.DistributedDataParallel(nn.Conv2d(1, 2, 3))

    def fit(self, steps):
        for step in range(steps):
            self.model(self.augment(torch.rand(1, 1, 64, 64), step)).mean().backward()


def main():
    dist.init_process_group("gloo")
    Trainer().fit(10)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
