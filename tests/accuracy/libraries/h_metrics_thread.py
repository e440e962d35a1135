# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 6"
# outcome = "healthy"
# ///
"""A reporter thread reduces statistics on a group of its own beside the training; the trials of a small search end at different times and
their ranks wait for the slowest at the end; the reporter is told to stop through the same group."""
import logging
import queue
import threading
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

log = logging.getLogger("search")


@dataclass
class SearchConfig:
    per_trial: int = 2
    steps: tuple = (20, 45, 80)
    pause: float = 0.1
    features: int = 6
    lrs: tuple = (0.1, 0.03, 0.01)


class Reporter(threading.Thread):
    """Every half second: how many steps did the job make? Ends when all ranks are done."""

    def __init__(self, group):
        super().__init__(name="reporter")
        self.group, self.inbox, self.done, self.history = group, queue.Queue(), False, []

    def run(self):
        while True:
            finished, steps = self.done, 0
            while not self.inbox.empty():
                self.inbox.get()
                steps += 1
            t = torch.tensor([float(steps), 1.0 if finished else 0.0])
            dist.all_reduce(t, group=self.group)
            self.history.append(int(t[0]))
            if int(t[1]) == dist.get_world_size():
                return
            time.sleep(0.5)


class Trial:
    def __init__(self, cfg, index, group, rank):
        self.cfg, self.index, self.group = cfg, index, group
        torch.manual_seed(index)
        self.net = nn.Linear(cfg.features, 1)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=cfg.lrs[index])
        self.gen = torch.Generator().manual_seed(rank)

    def step(self):
        x = torch.randn(8, self.cfg.features, generator=self.gen)
        loss = F.mse_loss(self.net(x).squeeze(-1), x.sum(1))
        self.opt.zero_grad()
        loss.backward()
        for p in self.net.parameters():
            dist.all_reduce(p.grad, group=self.group)
            p.grad /= self.cfg.per_trial
        self.opt.step()
        return loss.item()


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    cfg, rank, world = SearchConfig(), dist.get_rank(), dist.get_world_size()
    groups = [dist.new_group([2 * t, 2 * t + 1]) for t in range(world // cfg.per_trial)]
    reporter = Reporter(dist.new_group())
    reporter.start()
    index = rank // cfg.per_trial
    trial = Trial(cfg, index, groups[index], rank)
    for _ in range(cfg.steps[index]):
        loss = trial.step()
        reporter.inbox.put(loss)
        time.sleep(cfg.pause)
    rows = [None] * world
    dist.all_gather_object(rows, (index, loss))
    reporter.done = True
    reporter.join()
    if rank == 0:
        log.info("best %s, steps seen %d", min(rows, key=lambda r: r[1]), sum(reporter.history))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
