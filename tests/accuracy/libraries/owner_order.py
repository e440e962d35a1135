# /// hangdoc
# launch = "python"
# outcome = "hang"
# causes_any = ["HD105", "HD106"]
# culprits_any = [[2]]
# lines = [44, 45, 51, 59, 70]
# source = "https://github.com/meta-pytorch/torchrec/pull/4648"
# ///
"""A sharded optimizer: every parameter has an owner that steps it and broadcasts it. The list of names comes out of a set, so the owners
depend on the interpreter's hash seed, and one host of four does not have the launcher's PYTHONHASHSEED."""
import os
import socket
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

SEEDS = ["1", "1", "7", "1"]


@dataclass
class OptimConfig:
    lr: float = 0.01
    frozen: tuple = ("block3.bias",)
    width: int = 8


class Net(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        for i in range(4):
            self.add_module(f"block{i}", nn.Linear(cfg.width, cfg.width))

    def forward(self, x):
        for block in self.children():
            x = torch.tanh(block(x))
        return x


class Partition:
    def __init__(self, model, cfg, world):
        names = set(dict(model.named_parameters())) - set(cfg.frozen)
        self.owner = {name: i % world for i, name in enumerate(names)}


class ShardedSGD:
    def __init__(self, model, cfg, rank, world):
        self.cfg, self.rank, self.params = cfg, rank, dict(model.named_parameters())
        self.partition = Partition(model, cfg, world)

    @torch.no_grad()
    def step(self):
        for name in sorted(self.partition.owner):
            owner, p = self.partition.owner[name], self.params[name]
            if owner == self.rank:
                p -= self.cfg.lr * p.grad
            dist.broadcast(p.data, src=owner)


def worker(rank, world, port):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo")
    cfg = OptimConfig()
    model = Net(cfg)
    optimizer = ShardedSGD(model, cfg, rank, world)
    for _ in range(10):
        model(torch.randn(3, cfg.width)).sum().backward()
        optimizer.step()
    dist.destroy_process_group()


def main():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    context, ranks = mp.get_context("spawn"), []
    for rank, seed in enumerate(SEEDS):
        os.environ["PYTHONHASHSEED"] = seed
        ranks.append(context.Process(target=worker, args=(rank, len(SEEDS), port)))
        ranks[-1].start()
    for process in ranks:
        process.join()


if __name__ == "__main__":
    main()
