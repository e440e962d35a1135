# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# watch = "--give-up-after 8"
# outcome = "hang"
# causes_any = ["HD101", "HD102", "HD202", "HD505"]
# culprits = [2]
# lines = [36, 57, 62, 64, 76]
# branch = ["isfinite", "usable"]
# source = "https://github.com/pytorch/pytorch/pull/70278"
# ///
"""Trainers push gradients to a parameter server over RPC; the server answers when all three of a step have come.
Trainer 2 meets a loss that is not finite, skips its push and goes to the barrier at the end of the epoch."""
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import rpc


class Server:
    def __init__(self, trainers):
        self.trainers, self.arrived, self.round = trainers, 0, 0
        self.total, self.weights = torch.zeros(6), torch.zeros(6)
        self.ready = threading.Condition()

    def push(self, grad):
        with self.ready:
            mine, self.arrived = self.round, self.arrived + 1
            self.total += grad
            if self.arrived == self.trainers:
                self.weights -= 0.01 * self.total
                self.total, self.arrived, self.round = torch.zeros(6), 0, self.round + 1
                self.ready.notify_all()
            while self.round == mine:
                self.ready.wait()
            return self.weights


SERVER = None


def push(grad):
    return SERVER.push(grad)


class Trainer:
    def __init__(self, rank):
        self.rank, self.weights = rank, torch.zeros(6)

    def gradient(self, step):
        loss = torch.tensor(float("nan") if (self.rank, step) == (2, 8) else 1.0 + step)
        return loss, torch.full((6,), loss.item() / 10)

    @staticmethod
    def usable(loss):
        return torch.isfinite(loss).item()

    def epoch(self, first, steps):
        for step in range(first, first + steps):
            loss, grad = self.gradient(step)
            if not self.usable(loss):
                continue
            self.weights = rpc.rpc_sync("server", push, args=(grad,), timeout=0)


def main():
    global SERVER
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    SERVER = Server(world - 1)
    rpc.init_rpc("server" if rank == 0 else f"trainer{rank}", rank=rank, world_size=world)
    for epoch in range(3):
        if rank:
            Trainer(rank).epoch(5 * epoch, 5)
        dist.barrier()
    rpc.shutdown()


if __name__ == "__main__":
    main()
