# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD102"]
# culprits = [2]
# lines = [50, 90, 96, 112]
# branch = ["self.shard.batches(", "len(rows)<self.batch", "len(self.pending)==self.trainers", "range(epochs)", "range(0,len(self.rows)"]
# source = "https://github.com/pytorch/pytorch/pull/30020"
# ///
"""A parameter server and three trainers over RPC: each round the server averages one gradient of every trainer."""
import logging
import threading

import torch
import torch.distributed.rpc as rpc
from torch import nn

log = logging.getLogger("ps")
SHARDS = {"trainer1": 96, "trainer2": 75, "trainer3": 96}
BATCH = 8


class ParameterServer:
    _instance = None
    _guard = threading.Lock()

    def __init__(self, trainers):
        self.trainers = trainers
        self.model = nn.Linear(12, 1)
        self.changed = threading.Condition()
        self.pending = {}
        self.round = 0

    @classmethod
    def get(cls, trainers=len(SHARDS)):
        with cls._guard:
            if cls._instance is None:
                cls._instance = cls(trainers)
            return cls._instance

    def push(self, name, grads):
        with self.changed:
            current = self.round
            self.pending[name] = grads
            if len(self.pending) == self.trainers:
                self.apply()
                self.changed.notify_all()
            else:
                self.changed.wait_for(lambda: self.round > current)
            return [p.detach().clone() for p in self.model.parameters()]

    def apply(self):
        with torch.no_grad():
            for i, p in enumerate(self.model.parameters()):
                p -= 0.05 * sum(g[i] for g in self.pending.values()) / self.trainers
        self.pending.clear()
        self.round += 1


def push_gradients(name, grads):
    return ParameterServer.get().push(name, grads)


class Shard:
    """Rows of one trainer; a last short batch is left out."""

    def __init__(self, name, count, batch):
        gen = torch.Generator().manual_seed(count)
        self.rows = torch.randn(count, 13, generator=gen)
        self.name, self.batch = name, batch

    def batches(self, epochs):
        for _ in range(epochs):
            for at in range(0, len(self.rows), self.batch):
                rows = self.rows[at:at + self.batch]
                if len(rows) < self.batch:
                    continue
                yield rows[:, :12], rows[:, 12:]


class Trainer:
    def __init__(self, name, server):
        self.name, self.server = name, server
        self.shard = Shard(name, SHARDS[name], BATCH)
        self.model = nn.Linear(12, 1)

    def train(self, epochs):
        loss = torch.zeros(())
        for batch in self.shard.batches(epochs):
            x, y = batch
            self.model.zero_grad()
            loss = (self.model(x) - y).pow(2).mean()
            loss.backward()
            grads = [p.grad for p in self.model.parameters()]
            fresh = rpc.rpc_sync(self.server, push_gradients, args=(self.name, grads), timeout=0)
            with torch.no_grad():
                for p, value in zip(self.model.parameters(), fresh):
                    p.copy_(value)
        log.info("%s finished, last loss %.4f", self.name, loss.item())


def main():
    import os
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    name = "server" if rank == 0 else f"trainer{rank}"
    options = rpc.TensorPipeRpcBackendOptions(num_worker_threads=8, rpc_timeout=1800)
    rpc.init_rpc(name, rank=rank, world_size=world, rpc_backend_options=options)
    if rank > 0:
        Trainer(name, "server").train(epochs=2)
    rpc.shutdown()


if __name__ == "__main__":
    main()
