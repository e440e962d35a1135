# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD102", "HD202", "HD505", "HD508", "HD109"]
# culprits_any = [[3], [1, 2]]
# lines = [59, 62, 102, 105, 119, 120]
# branch = ["for x, y in self.shard", "len(self.grads) == self.quorum"]
# source = "https://github.com/pytorch/pytorch/issues/33208"
# ///
import logging
import os
import threading
from dataclasses import dataclass

import torch
import torch.distributed.rpc as rpc
import torch.nn as nn

log = logging.getLogger("ps")


@dataclass
class PSConfig:
    lr: float = 0.05
    batch: int = 16
    lengths: tuple = (160, 160, 132)
    epochs: int = 2


def make_model():
    torch.manual_seed(0)
    return nn.Linear(10, 1)


class ParameterServer:
    def __init__(self, quorum, lr):
        self.model = make_model()
        self.quorum = quorum
        self.opt = torch.optim.SGD(self.model.parameters(), lr=lr)
        self.cond = threading.Condition()
        self.grads = []
        self.version = 0

    def weights(self):
        return [p.detach().clone() for p in self.model.parameters()]

    def _apply(self):
        for k, p in enumerate(self.model.parameters()):
            p.grad = sum(g[k] for g in self.grads) / self.quorum
        self.opt.step()
        self.grads = []
        self.version += 1

    def push_pull(self, grads):
        with self.cond:
            target = self.version + 1
            self.grads.append(grads)
            if len(self.grads) == self.quorum:
                self._apply()
                self.cond.notify_all()
            self.cond.wait_for(lambda: self.version >= target)
            return self.version, self.weights()


SERVER = None


def start_server(quorum, lr):
    global SERVER
    SERVER = ParameterServer(quorum, lr)


def push_pull(grads):
    return SERVER.push_pull(grads)


class Shard:
    def __init__(self, seed, n, batch):
        g = torch.Generator().manual_seed(seed)
        self.x = torch.randn(n, 10, generator=g)
        self.y = self.x.sum(1, keepdim=True)
        self.batch = batch

    def __iter__(self):
        yield from zip(self.x.split(self.batch), self.y.split(self.batch))


class Trainer:
    def __init__(self, cfg, index):
        self.model = make_model()
        self.shard = Shard(index, cfg.lengths[index], cfg.batch)
        self.name = f"trainer{index}"

    def _load(self, weights):
        with torch.no_grad():
            for p, w in zip(self.model.parameters(), weights):
                p.copy_(w)

    def epoch(self, number):
        loss = None
        for x, y in self.shard:
            loss = nn.functional.mse_loss(self.model(x), y)
            grads = torch.autograd.grad(loss, list(self.model.parameters()))
            version, weights = rpc.rpc_sync("server", push_pull, args=(list(grads),), timeout=0)
            self._load(weights)
        log.info("%s epoch %d loss %.4f version %d", self.name, number, loss.item(), version)


def run(rank, world, cfg):
    options = rpc.TensorPipeRpcBackendOptions(num_worker_threads=8, rpc_timeout=7200)
    if rank == 0:
        start_server(world - 1, cfg.lr)
        rpc.init_rpc("server", rank=0, world_size=world, rpc_backend_options=options)
    else:
        rpc.init_rpc(f"trainer{rank - 1}", rank=rank, world_size=world, rpc_backend_options=options)
        trainer = Trainer(cfg, rank - 1)
        for number in range(cfg.epochs):
            trainer.epoch(number)
    rpc.shutdown()


def main():
    logging.basicConfig(level=logging.INFO)
    run(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), PSConfig())
    log.info("bye")


if __name__ == "__main__":
    main()
