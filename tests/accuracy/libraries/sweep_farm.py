# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 5"
# requires = []
# outcome = "hang"
# causes_any = ["HD202"]
# culprits = [0]
# lines = [55, 83, 86, 89, 90, 96, 102, 103, 110, 123]
# branch = ["DECLINED", "self.idle", "self.budget"]
# source = "https://github.com/keichi/mpEDM/pull/64"
# ///
"""A sweep over model widths: rank 0 deals trials to whoever is free, the other ranks train them and report; at the end all ranks compare notes."""
import logging
from collections import deque
from dataclasses import dataclass

import torch
import torch.distributed as dist

log = logging.getLogger("sweep")
ASK, RESULT, DECLINED = 0, 1, 2
STOP = -1


@dataclass(frozen=True)
class Budget:
    """Parameters that a worker's memory allows."""
    by_rank: tuple = (0, 200_000, 200_000, 20_000, 200_000)

    def of(self, rank: int) -> int:
        return self.by_rank[rank % len(self.by_rank)]


class Worker:
    def __init__(self, rank: int, budget: int, manager: int = 0):
        self.rank, self.budget, self.manager = rank, budget, manager

    def report(self, kind: int, width: int, loss: float):
        dist.send(torch.tensor([kind, width, loss], dtype=torch.float64), self.manager)

    def train(self, width: int) -> float:
        torch.manual_seed(width)
        net = torch.nn.Sequential(torch.nn.Linear(16, width), torch.nn.ReLU(), torch.nn.Linear(width, 1))
        data = torch.randn(64, 16)
        for _ in range(150):
            loss = (net(data).squeeze() - data.sum(1)).pow(2).mean()
            gradients = torch.autograd.grad(loss, list(net.parameters()))
            for parameter, gradient in zip(net.parameters(), gradients):
                parameter.data.sub_(gradient, alpha=1e-4)
        return loss.item()

    def run(self):
        self.report(ASK, 0, 0.0)
        order = torch.zeros(1, dtype=torch.int64)
        while True:
            dist.recv(order, self.manager)
            width = int(order)
            if width == STOP:
                log.info("told to stop")
                return
            if width * 18 > self.budget:
                self.report(DECLINED, width, 0.0)
            else:
                self.report(RESULT, width, self.train(width))


class Manager:
    def __init__(self, widths, workers: int):
        self.todo = deque(widths)
        self.workers = workers
        self.expected = len(self.todo)
        self.results = {}
        self.idle = set()

    def deal(self, worker: int):
        if self.todo:
            self.idle.discard(worker)
            dist.send(torch.tensor([self.todo.popleft()]), worker)
        else:
            self.idle.add(worker)

    def run(self):
        message = torch.zeros(3, dtype=torch.float64)
        while len(self.results) < self.expected or len(self.idle) < self.active():
            sender = dist.recv(message)
            kind, width, loss = int(message[0]), int(message[1]), float(message[2])
            if kind == DECLINED:
                log.info("worker %d has no room for width %d", sender, width)
                self.todo.append(width)
                self.workers -= 1
                continue
            if kind == RESULT:
                self.results[width] = loss
            self.deal(sender)
            while self.todo and self.idle:
                self.deal(next(iter(self.idle)))
        self.finish()

    def active(self) -> int:
        return self.workers

    def finish(self):
        for worker in sorted(self.idle):
            dist.send(torch.tensor([STOP]), worker)
        best = min(self.results, key=self.results.get)
        log.info("%d trials, best width %d with loss %.4f", len(self.results), best, self.results[best])


def compare_notes(rank: int):
    used = torch.tensor([float(rank)])
    dist.all_reduce(used)
    log.info("everyone agrees: %d", int(used))


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    logging.basicConfig(level=logging.INFO, format=f"[rank {rank}] %(message)s")
    widths = sorted([32 * (k + 1) for k in range(12)] + [2048, 3072, 4096, 5120, 1536, 2560, 3584, 4608], reverse=True)
    if rank == 0:
        Manager(widths, world - 1).run()
    else:
        Worker(rank, Budget().of(rank)).run()
    compare_notes(rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
