# /// hangdoc
# launch = "python"
# requires = []
# outcome = "hang"
# causes_any = ["HD505", "HD508", "HD507", "HD101"]
# culprits = [2]
# lines = [81, 80, 65, 79, 100, 58, 85, 78]
# branch = ["len(fold) < self.minimum", "len(fold)", "report is None"]
# source = "https://github.com/pytorch/pytorch/issues/32322"
# ///
"""Cross-validation by forked ranks: each reports its fold to the parent, which picks the setting for the final training."""
import logging
import os
import queue
import socket
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

log = logging.getLogger("crossval")
RATES = (0.3, 0.03, 0.003)
COHORTS = {"north": 240, "south": 180, "island": 9, "coast": 210}


@dataclass
class Report:
    rank: int
    losses: dict


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def cohort(rank: int) -> tuple:
    name, rows = list(COHORTS.items())[rank]
    gen = torch.Generator().manual_seed(rank)
    x = torch.randn(rows, 12, generator=gen)
    return x, x @ torch.linspace(-1, 1, 12) + 0.1 * torch.randn(rows, generator=gen)


class Study:
    def __init__(self, rank: int, world: int, reports, chosen, rate):
        self.rank, self.world = rank, world
        self.reports, self.chosen, self.rate = reports, chosen, rate
        self.minimum = 20
        self.x, self.y = cohort(rank)

    def fit(self, x, y, rate: float, steps: int = 60, shared: bool = False) -> torch.Tensor:
        weight = torch.zeros(12)
        for _ in range(steps):
            grad = x.T @ (x @ weight - y) / len(x)
            if shared:
                dist.all_reduce(grad)
                grad /= self.world
            weight -= rate * grad
        return weight

    def validate(self) -> Report | None:
        fold = torch.arange(0, len(self.x), 4)
        if len(fold) < self.minimum:
            log.info("rank %d: %d rows are too few for a fold", self.rank, len(fold))
            return None
        train = torch.ones(len(self.x), dtype=torch.bool)
        train[fold] = False
        losses = {}
        for rate in RATES:
            weight = self.fit(self.x[train], self.y[train], rate)
            losses[rate] = (self.x[fold] @ weight - self.y[fold]).square().mean().item()
        return Report(self.rank, losses)

    def choose(self) -> float:
        report = self.validate()
        if report is None:
            return RATES[1]
        self.reports.put(report)
        self.chosen.wait()
        return self.rate.value

    def run(self) -> float:
        rate = self.choose()
        weight = self.fit(self.x, self.y, rate, steps=100, shared=True)
        return (self.x @ weight - self.y).square().mean().item()


def worker(rank: int, world: int, reports, chosen, rate) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo", rank=rank, world_size=world)
    log.info("rank %d: final loss %.4f", rank, Study(rank, world, reports, chosen, rate).run())
    dist.destroy_process_group()


def pick(reports: "queue.Queue", world: int) -> float:
    total = dict.fromkeys(RATES, 0.0)
    for _ in range(world):
        report = reports.get()
        log.info("report of rank %d: %s", report.rank, report.losses)
        for rate, loss in report.losses.items():
            total[rate] += loss
    return min(total, key=total.get)


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    world = len(COHORTS)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
    ctx = mp.get_context("fork")
    reports, chosen, rate = ctx.Queue(), ctx.Event(), ctx.Value("d", 0.0)
    context = mp.start_processes(worker, (world, reports, chosen, rate), nprocs=world, join=False, start_method="fork")
    rate.value = pick(reports, world)
    chosen.set()
    while not context.join():
        pass


if __name__ == "__main__":
    main()
