# /// hangdoc
# launch = "python"
# outcome = "hang"
# causes_any = ["HD302"]
# culprits_any = [[1, 2, 3], [0, 1, 2, 3], [0]]
# lines = [52, 53, 59, 92]
# branch = ["MASTER_PORT"]
# source = "https://github.com/pytorch/pytorch/issues/53395"
# ///
"""Training started with mp.spawn, where each child looks for a free port of its own.

The port function is meant for the parent; without MASTER_PORT in the environment every rank takes another one, so rank 0
listens where nobody calls.
"""
import logging
import os
import socket
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("spawned")


@dataclass
class SpawnConfig:
    world: int = 4
    hidden: int = 16
    epochs: int = 2
    batches: int = 8
    host: str = "127.0.0.1"


def find_free_port():
    with closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Rendezvous:
    def __init__(self, cfg, rank):
        self.cfg, self.rank = cfg, rank

    @property
    def port(self):
        if "MASTER_PORT" not in os.environ:
            os.environ["MASTER_PORT"] = str(find_free_port())
        return os.environ["MASTER_PORT"]

    def join(self):
        os.environ["MASTER_ADDR"] = self.cfg.host
        log.info("[rank %d] joining %s:%s", self.rank, self.cfg.host, self.port)
        dist.init_process_group("gloo", rank=self.rank, world_size=self.cfg.world, timeout=timedelta(minutes=30))


class Regressor(torch.nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(4, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


class Runner:
    def __init__(self, cfg, rank):
        self.cfg, self.rank = cfg, rank
        self.model = DDP(Regressor(cfg.hidden))
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.rng = torch.Generator().manual_seed(rank)

    def epoch(self):
        for _ in range(self.cfg.batches):
            x = torch.randn(8, 4, generator=self.rng)
            loss = (self.model(x) - x.sum(-1)).pow(2).mean()
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
        return loss.item()


def worker(rank, cfg):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    Rendezvous(cfg, rank).join()
    runner = Runner(cfg, rank)
    for epoch in range(cfg.epochs):
        loss = runner.epoch()
        if rank == 0:
            log.info("epoch %d loss %.4f", epoch, loss)
    dist.barrier()
    dist.destroy_process_group()


def main():
    cfg = SpawnConfig()
    mp.spawn(worker, args=(cfg,), nprocs=cfg.world, join=True)


if __name__ == "__main__":
    main()
