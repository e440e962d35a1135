# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD701", "HD505"]
# culprits = [2]
# lines = [60, 137]
# source = "https://github.com/Astera-org/simplexity/pull/176"
# ///
import logging
import math
import queue
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn as nn

log = logging.getLogger("hmm")


@dataclass
class FeedConfig:
    sizes: tuple = (430, 425, 980)
    batch: int = 10
    ahead: int = 16


class Process:
    """Generates observations of a small hidden Markov process."""

    def __init__(self, seed):
        self.gen = torch.Generator().manual_seed(seed)
        self.state = 0

    def sample(self, n):
        out = torch.empty(n, 4)
        for k in range(n):
            flip = torch.rand((), generator=self.gen).item() < 0.3
            self.state = (self.state + flip) % 4
            out[k] = nn.functional.one_hot(torch.tensor(self.state), 4)
        return out


class BackgroundFeed:
    def __init__(self, process, total, cfg):
        self.process = process
        self.total = total
        self.cfg = cfg
        self.ready = queue.Queue(maxsize=cfg.ahead)
        self.executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="feed")
        self.job = self.executor.submit(self._produce)

    def _produce(self):
        left = self.total
        while left > 0:
            n = min(self.cfg.batch, left)
            self.ready.put(self.process.sample(n))
            left -= n
        return self.total

    def get(self):
        return self.ready.get(timeout=120)

    def shutdown(self):
        self.executor.shutdown(wait=False)


class Plateau:
    def __init__(self, patience=4, tol=2e-2):
        self.best = math.inf
        self.bad = 0
        self.patience = patience
        self.tol = tol

    def update(self, value):
        if value < self.best - self.tol:
            self.best, self.bad = value, 0
        else:
            self.bad += 1
        return self.bad >= self.patience


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 4)

    def loss(self, obs):
        logits = self.net(obs[:-1])
        return nn.functional.cross_entropy(logits, obs[1:].argmax(1))


def average_gradients(model):
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()


def train(feed, cfg, rank, world):
    torch.manual_seed(0)
    model = Model()
    opt = torch.optim.Adam(model.parameters(), lr=0.02)
    plateau = Plateau()
    for step in range(1, min(cfg.sizes) // cfg.batch):
        loss = model.loss(feed.get())
        opt.zero_grad()
        loss.backward()
        average_gradients(model)
        opt.step()
        if step % 6 == 0:
            shared = loss.detach().clone()
            dist.all_reduce(shared)
            if plateau.update(shared.item() / world):
                log.info("rank %d plateau at step %d", rank, step)
                break
    return model


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(hours=1))
    rank, world = dist.get_rank(), dist.get_world_size()
    cfg = FeedConfig()
    feed = BackgroundFeed(Process(rank), cfg.sizes[rank], cfg)
    train(feed, cfg, rank, world)
    dist.barrier()
    feed.shutdown()
    dist.destroy_process_group()
    log.info("rank %d closed", rank)


if __name__ == "__main__":
    main()
