# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "healthy"
# source = "https://github.com/pytorch/pytorch/issues/85607"
# ///
"""An RPC embedding server sits in shutdown() with nothing to do while a trainer works locally between its rare look-ups."""
import os
import time
from dataclasses import dataclass

import torch
import torch.distributed.rpc as rpc
from torch import nn

NAMES = ["server", "trainer1", "trainer2"]
TABLE = nn.Embedding(50, 4)


@dataclass
class Pace:
    lookups: int = 3
    seconds: float = 10.0


def lookup(ids):
    return TABLE(ids).detach()


class LocalModel:
    def __init__(self):
        self.net = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 1))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01)

    def refine(self, x, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.optimizer.zero_grad()
            self.net(x).square().mean().backward()
            self.optimizer.step()


def trainer(pace):
    model = LocalModel()
    for _ in range(pace.lookups):
        x = rpc.rpc_sync("server", lookup, args=(torch.randint(50, (8,)),))
        model.refine(x, pace.seconds)


def main():
    rank = int(os.environ["RANK"])
    rpc.init_rpc(NAMES[rank], rank=rank, world_size=3)
    if rank:
        trainer(Pace())
    rpc.shutdown()


if __name__ == "__main__":
    main()
