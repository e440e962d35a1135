# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "healthy"
# source = "https://github.com/lhotse-speech/lhotse/issues/1098"
# ///
"""Uneven streams of utterances under DDP with the join context; the longest stream goes on alone for a while."""
import logging
import random
import time

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("streams")


class UtteranceStream:
    """Buckets of utterances by duration; how many there are depends on the speakers of the rank."""

    SPEAKERS = {0: 3, 1: 11, 2: 5}

    def __init__(self, rank):
        self.rank = rank
        self.rng = random.Random(rank)

    def __iter__(self):
        for speaker in range(self.SPEAKERS[self.rank % 3]):
            for _ in range(4):
                seconds = self.rng.choice((0.1, 0.3, 0.6))
                yield speaker, torch.randn(4, 20, generator=torch.Generator().manual_seed(speaker)), seconds


class AcousticModel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.front = torch.nn.Linear(20, 32)
        self.back = torch.nn.Linear(32, 1)

    def forward(self, x):
        return self.back(torch.relu(self.front(x)))


def sgd(model, lr=0.01):
    with torch.no_grad():
        for p in model.parameters():
            p.sub_(p.grad, alpha=lr)
            p.grad = None


def train(model, stream):
    steps = 0
    with Join([model]):
        for speaker, features, seconds in stream:
            time.sleep(seconds)
            loss = model(features).pow(2).mean()
            loss.backward()
            sgd(model)
            steps += 1
    return steps


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(AcousticModel())
    steps = train(model, UtteranceStream(dist.get_rank()))
    log.info("rank %d took %d steps", dist.get_rank(), steps)
    total = torch.tensor([steps])
    dist.all_reduce(total)
    log.info("all ranks: %d", int(total))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
