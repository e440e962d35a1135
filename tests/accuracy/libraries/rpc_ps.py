# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD102", "HD101", "HD702"]
# culprits = [3]
# lines = [107, 108, 130]
# branch = ["b.usable()", "self.mask.any()"]
# source = "https://github.com/pytorch/pytorch/issues/63247"
# ///
"""Batch-updating parameter server over torch.distributed.rpc. The server answers a round when every trainer has pushed. Trainer 3
leaves a fully masked batch out, so it pushes once less than the others and sits in rpc.shutdown while they wait for the last round."""
import logging
import os
import threading
from dataclasses import dataclass

import torch
import torch.distributed.rpc as rpc
from torch import nn

log = logging.getLogger("ps")


@dataclass
class JobConfig:
    features: int = 12
    rounds: int = 10
    batch_size: int = 16
    lr: float = 0.1


class Batch:
    def __init__(self, x, y, mask):
        self.x, self.y, self.mask = x, y, mask

    def usable(self):
        return bool(self.mask.any())


class ClickStream:
    """Replays the recorded clicks of one shop. A bot filter has set the mask."""

    def __init__(self, cfg, shop):
        self.cfg, self.shop = cfg, shop
        self.gen = torch.Generator().manual_seed(100 + shop)

    def __iter__(self):
        for i in range(self.cfg.rounds):
            x = torch.randn(self.cfg.batch_size, self.cfg.features, generator=self.gen)
            y = x[:, :1] * 0.7 - x[:, 1:2] * 0.2
            bots = torch.rand(self.cfg.batch_size, generator=self.gen) < 0.1
            if self.shop == 3 and i == 5:
                bots[:] = True  # the crawler of a price comparison site
            yield Batch(x, y, ~bots)


class ParameterServer:
    def __init__(self, cfg, trainers):
        self.model = nn.Linear(cfg.features, 1)
        self.optim = torch.optim.SGD(self.model.parameters(), lr=cfg.lr)
        self.trainers, self.lock = trainers, threading.Lock()
        self.pending, self.answer = [], torch.futures.Future()
        self.round = 0

    def weights(self):
        return [p.detach() for p in self.model.parameters()]

    @staticmethod
    @rpc.functions.async_execution
    def push(server_rref, grads):
        self = server_rref.local_value()
        with self.lock:
            self.pending.append(grads)
            answer = self.answer
            if len(self.pending) >= self.trainers:
                self.apply()
                self.answer = torch.futures.Future()
                answer.set_result(self.weights())
        return answer

    def apply(self):
        for i, p in enumerate(self.model.parameters()):
            p.grad = torch.stack([g[i] for g in self.pending]).mean(0)
        self.optim.step()
        self.pending.clear()
        self.round += 1


class Trainer:
    def __init__(self, cfg, server_rref, shop):
        self.cfg, self.server, self.shop = cfg, server_rref, shop
        self.model = nn.Linear(cfg.features, 1)
        self.pull(server_rref.rpc_sync().weights())

    def pull(self, weights):
        with torch.no_grad():
            for p, w in zip(self.model.parameters(), weights):
                p.copy_(w)

    def gradients(self, batch):
        self.model.zero_grad()
        err = (self.model(batch.x) - batch.y).pow(2).squeeze(1)
        err[batch.mask].mean().backward()
        return [p.grad.clone() for p in self.model.parameters()]

    def run(self):
        stream = (b for b in ClickStream(self.cfg, self.shop) if b.usable())
        for i, batch in enumerate(stream):
            grads = self.gradients(batch)
            new = rpc.rpc_sync(self.server.owner(), ParameterServer.push, args=(self.server, grads))
            self.pull(new)
        log.info("shop %d done after %d rounds", self.shop, i + 1)


def train_shop(server_rref, cfg, shop):
    Trainer(cfg, server_rref, shop).run()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    options = rpc.TensorPipeRpcBackendOptions(num_worker_threads=8, rpc_timeout=7200)
    name = "server" if rank == 0 else f"trainer{rank}"
    cfg = JobConfig()
    rpc.init_rpc(name, rank=rank, world_size=world, rpc_backend_options=options)
    if rank > 0:
        server = rpc.remote("server", get_server, args=(cfg, world - 1))
        train_shop(server, cfg, rank)
    rpc.shutdown()


_server, _server_lock = None, threading.Lock()


def get_server(cfg, trainers):
    global _server
    with _server_lock:
        if _server is None:
            _server = ParameterServer(cfg, trainers)
        return _server


if __name__ == "__main__":
    main()
