# /// hangdoc
# watch = "--give-up-after 8"
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD101", "HD102", "HD109"]
# culprits = [3]
# culprits_any = [[3], [1, 2]]
# lines = [50, 85, 95, 96, 97, 98, 99, 120, 121]
# branch = ["not torch.isfinite(loss)", "grad is None"]
# source = "https://github.com/pytorch/examples/pull/792"
# ///
"""A parameter server over RPC that applies one update per full batch of trainer gradients."""
import logging
import os
import threading
from dataclasses import dataclass

import torch
import torch.distributed.rpc as rpc

log = logging.getLogger("ps")


@dataclass
class Config:
    dim: int = 6
    rounds: int = 30
    lr: float = 0.05
    rows: int = 16


class BatchUpdateServer:
    def __init__(self, dim: int, trainers: int, lr: float):
        self.weights = torch.zeros(dim, 1)
        self.lock = threading.Lock()
        self.pending = torch.futures.Future()
        self.trainers, self.lr = trainers, lr
        self.grads = []

    def fetch(self) -> torch.Tensor:
        return self.weights

    @staticmethod
    @rpc.functions.async_execution
    def push_and_fetch(server_rref, grad: torch.Tensor):
        self = server_rref.local_value()
        with self.lock:
            self.grads.append(grad)
            fut = self.pending
            if len(self.grads) >= self.trainers:
                self.weights = self.weights - self.lr * torch.stack(self.grads).mean(0)
                self.grads.clear()
                self.pending = torch.futures.Future()
                fut.set_result(self.weights)
        return fut


class SensorTable:
    """Readings of one site; a site's meter may saturate now and then."""

    def __init__(self, site: int, cfg: Config):
        self.gen = torch.Generator().manual_seed(100 + site)
        self.site, self.cfg = site, cfg
        self.truth = torch.arange(1.0, cfg.dim + 1).reshape(-1, 1) / 4

    def rows(self, n: int):
        x = torch.randn(self.cfg.rows, self.cfg.dim, generator=self.gen)
        y = x @ self.truth
        if self.site % 3 == 0 and n % 12 == 7:
            y[n % len(y)] = float("inf")
        return x, y


class Trainer:
    def __init__(self, server_rref, cfg: Config):
        self.server, self.cfg = server_rref, cfg
        self.name = rpc.get_worker_info().name
        self.table = SensorTable(rpc.get_worker_info().id, cfg)
        self.skipped = 0

    def gradient(self, w: torch.Tensor, n: int):
        x, y = self.table.rows(n)
        w = w.clone().requires_grad_()
        loss = (x @ w - y).square().mean()
        if not torch.isfinite(loss):
            self.skipped += 1
            return None
        loss.backward()
        return w.grad

    def train(self) -> int:
        w = self.server.rpc_sync().fetch()
        for n in range(self.cfg.rounds):
            grad = self.gradient(w, n)
            if grad is None:
                continue
            w = rpc.rpc_sync(
                self.server.owner(), BatchUpdateServer.push_and_fetch, args=(self.server, grad)
            )
            if n % 5 == 0:
                log.info("%s round %d |w| %.3f", self.name, n, w.norm())
        log.info("%s finished, %d skipped", self.name, self.skipped)
        return self.skipped


def run_trainer(server_rref, cfg: Config) -> int:
    return Trainer(server_rref, cfg).train()


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    options = rpc.TensorPipeRpcBackendOptions(num_worker_threads=8, rpc_timeout=7200, _transports=["uv"], _channels=["basic"])
    name = "server" if rank == 0 else f"trainer{rank}"
    rpc.init_rpc(name, rank=rank, world_size=world, rpc_backend_options=options)
    if rank == 0:
        cfg = Config()
        server = rpc.RRef(BatchUpdateServer(cfg.dim, world - 1, cfg.lr))
        futs = [rpc.rpc_async(f"trainer{r}", run_trainer, args=(server, cfg)) for r in range(1, world)]
        log.info("skipped: %s", torch.futures.wait_all(futs))
    rpc.shutdown(timeout=7200)


if __name__ == "__main__":
    main()
