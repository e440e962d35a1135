# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD505"]
# culprits = [0]
# lines = [52, 54, 55, 95, 96]
# source = "https://pytorch.org/tutorials/intermediate/rpc_async_execution.html"
# ///
"""Synchronous parameter server over torch's RPC: the server averages the gradients of all trainers before anybody gets the new weights."""
import logging
import os
import threading

import torch
import torch.distributed.rpc as rpc
from torch import nn

log = logging.getLogger("ps")
SERVER = "server"


class ParameterServer:
    """Lives on the server; every trainer calls push() once a round and gets the round's result."""

    instance = None

    def __init__(self, trainers: int, size: int, rate: float = 0.05):
        self.trainers, self.rate = trainers, rate
        self.weights = torch.zeros(size)
        self.total = torch.zeros(size)
        self.arrived = 0
        self.round = 0
        self.changed = threading.Condition()

    @classmethod
    def get(cls):
        return cls.instance

    def apply(self):
        self.weights = self.weights - self.rate * self.total / self.trainers
        self.total.zero_()
        self.arrived = 0
        self.round += 1
        self.changed.notify_all()

    def push(self, gradient: torch.Tensor) -> torch.Tensor:
        with self.changed:
            self.total += gradient
            self.arrived += 1
            round_number = self.round
            if self.arrived == self.trainers:
                self.apply()
            while self.round == round_number:
                self.changed.wait()
            return self.weights


def push_gradient(gradient: torch.Tensor) -> torch.Tensor:
    return ParameterServer.get().push(gradient)


def describe() -> dict:
    server = ParameterServer.get()
    return {"round": server.round, "trainers": server.trainers}


class Trainer:
    def __init__(self, number: int, size: int):
        torch.manual_seed(number)
        self.model = nn.Linear(size, 1, bias=False)
        self.size = size

    def gradient(self) -> torch.Tensor:
        data = torch.randn(32, self.size)
        loss = (self.model(data).squeeze() - data.sum(dim=1)).pow(2).mean()
        self.model.zero_grad()
        loss.backward()
        self.loss = loss.item()
        return self.model.weight.grad.flatten().clone()

    def install(self, weights: torch.Tensor):
        with torch.no_grad():
            self.model.weight.copy_(weights.reshape(1, -1))

    def run(self, rounds: int):
        log.info("server says %s", rpc.rpc_sync(SERVER, describe))
        for number in range(rounds):
            self.install(rpc.rpc_sync(SERVER, push_gradient, args=(self.gradient(),)))
            if number % 5 == 0:
                log.info("round %d loss %.4f", number, self.loss)


def rpc_options() -> rpc.TensorPipeRpcBackendOptions:
    threads = int(os.environ.get("RPC_THREADS", "2"))
    return rpc.TensorPipeRpcBackendOptions(num_worker_threads=threads, rpc_timeout=1800)


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    logging.basicConfig(level=logging.INFO, format=f"[rank {rank}] %(message)s")
    size = 64
    if rank == 0:
        ParameterServer.instance = ParameterServer(world - 1, size)
        rpc.init_rpc(SERVER, rank=rank, world_size=world, rpc_backend_options=rpc_options())
    else:
        rpc.init_rpc(f"trainer{rank}", rank=rank, world_size=world, rpc_backend_options=rpc_options())
        Trainer(rank, size).run(rounds=20)
    rpc.shutdown()
    log.info("finished")


if __name__ == "__main__":
    main()
