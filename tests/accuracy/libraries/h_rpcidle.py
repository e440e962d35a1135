# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "healthy"
# source = "https://github.com/pytorch/pytorch/pull/70278"
# ///
"""Healthy: an RPC embedding server whose main thread sits in rpc.shutdown() from the beginning, one fast trainer that is done early
and waits there too, and one trainer that computes for some 25 s between its calls."""
import logging
import os
import threading
import time
from dataclasses import dataclass

import torch
import torch.distributed.rpc as rpc
from torch import nn

log = logging.getLogger("rpc")


@dataclass
class TableConfig:
    rows: int = 200
    dim: int = 8
    batches: int = 6
    heavy_seconds: float = 4.0
    lr: float = 0.1


class TableServer:
    def __init__(self, cfg):
        self.weight, self.lr, self.lock = torch.randn(cfg.rows, cfg.dim) * 0.1, cfg.lr, threading.Lock()

    def lookup(self, ids):
        with self.lock:
            return self.weight[ids]

    def update(self, ids, grads):
        with self.lock:
            self.weight.index_add_(0, ids, grads, alpha=-self.lr)


_table, _guard = None, threading.Lock()


def table(cfg):
    global _table
    with _guard:
        _table = _table or TableServer(cfg)
    return _table


class Trainer:
    def __init__(self, cfg, server, index):
        self.cfg, self.server, self.index = cfg, server, index
        self.head = nn.Linear(cfg.dim, 1)
        self.gen = torch.Generator().manual_seed(index)

    def features(self, ids):
        """Trainer 2 has the long documents."""
        rows = self.server.rpc_sync().lookup(ids).requires_grad_()
        if self.index == 2:
            until = time.time() + self.cfg.heavy_seconds
            x = rows.detach()
            while time.time() < until:
                x = torch.tanh(x @ x.T @ x)
        return rows

    def run(self):
        for b in range(self.cfg.batches):
            ids = torch.randint(self.cfg.rows, (16,), generator=self.gen)
            rows = self.features(ids)
            loss = (self.head(rows) - (ids[:, None] % 3).float()).pow(2).mean()
            loss.backward()
            self.server.rpc_sync().update(ids, rows.grad)
        log.info("trainer %d: loss %.3f", self.index, loss.item())


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    options = rpc.TensorPipeRpcBackendOptions(num_worker_threads=4, rpc_timeout=1800)
    rpc.init_rpc("table" if rank == 0 else f"trainer{rank}", rank=rank, world_size=world, rpc_backend_options=options)
    if rank > 0:
        cfg = TableConfig()
        Trainer(cfg, rpc.remote("table", table, args=(cfg,)), rank).run()
    rpc.shutdown()


if __name__ == "__main__":
    main()
