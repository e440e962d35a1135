# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 5"
# requires = []
# outcome = "hang"
# causes_any = ["HD505", "HD508", "HD202"]
# culprits = [0]
# lines = [56, 74, 100, 109, 117, 126]
# source = "https://github.com/pytorch/pytorch/issues/26362"
# ///
"""Synchronous parameter server over torch.distributed.rpc: trainers push gradients, the server averages a round and hands the new weights back."""
import argparse
import logging
import os
import threading

import torch
import torch.distributed.rpc as rpc
from torch import nn

logger = logging.getLogger("ps")
SERVER = "server"


def build_model():
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 3))


class ParameterServer:
    _instance = None
    _guard = threading.Lock()

    def __init__(self, trainers, lr):
        self.trainers = trainers
        self.model = build_model()
        self.opt = torch.optim.SGD(self.model.parameters(), lr=lr)
        self.turn = threading.Condition()
        self.arrived, self.version = 0, 0

    @classmethod
    def get(cls, trainers=None, lr=0.1):
        with cls._guard:
            if cls._instance is None:
                cls._instance = cls(trainers, lr)
            return cls._instance

    def push(self, name, grads):
        with self.turn:
            entered = self.version
            for p, g in zip(self.model.parameters(), grads):
                p.grad = g.clone() if p.grad is None else p.grad + g
            self.arrived += 1
            if self.arrived == self.trainers:
                self._apply()
            else:
                self.turn.wait_for(lambda: self.version > entered)
            return self.version, [p.detach().clone() for p in self.model.parameters()]

    def _apply(self):
        for p in self.model.parameters():
            p.grad /= self.trainers
        self.opt.step()
        self.opt.zero_grad()
        self.arrived = 0
        self.version += 1
        self.turn.notify_all()


def server_weights():
    return [p.detach().clone() for p in ParameterServer.get().model.parameters()]


def server_push(name, grads):
    return ParameterServer.get().push(name, grads)


class Trainer:
    def __init__(self, name, index, args):
        self.name, self.args = name, args
        self.model = build_model()
        self.data = torch.Generator().manual_seed(index)
        self.load(rpc.rpc_sync(SERVER, server_weights))

    def load(self, weights):
        with torch.no_grad():
            for p, w in zip(self.model.parameters(), weights):
                p.copy_(w)

    def batches(self):
        for _ in range(self.args.rounds):
            x = torch.randn(self.args.batch, 12, generator=self.data)
            yield x, (x.sum(1) > 0).long() + (x[:, 0] > 1).long()

    def fit(self):
        for x, y in self.batches():
            self.model.zero_grad()
            loss = nn.functional.cross_entropy(self.model(x), y)
            loss.backward()
            grads = [p.grad for p in self.model.parameters()]
            version, weights = rpc.rpc_sync(SERVER, server_push, args=(self.name, grads))
            self.load(weights)
            logger.info("%s round %d loss %.4f", self.name, version, loss.item())


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--rounds", type=int, default=30)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--rpc-threads", type=int, default=3)
    return p.parse_args()


def main():
    args = parse()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [{rank}] %(message)s")
    options = rpc.TensorPipeRpcBackendOptions(num_worker_threads=args.rpc_threads, rpc_timeout=1800)
    if rank == 0:
        ParameterServer.get(trainers=world - 1)
        rpc.init_rpc(SERVER, rank=rank, world_size=world, rpc_backend_options=options)
        logger.info("serving %d trainers", world - 1)
    else:
        name = f"trainer{rank}"
        rpc.init_rpc(name, rank=rank, world_size=world, rpc_backend_options=options)
        Trainer(name, rank, args).fit()
    rpc.shutdown(timeout=1800)


if __name__ == "__main__":
    main()
