# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD101", "HD102", "HD106"]
# culprits = [2]
# culprits_any = [[2], [0, 1]]
# lines = [76, 97, 113, 117, 120, 121, 122, 128]
# branch = ["now - req.arrived > self.limits.waiting_s", "not batch"]
# source = "https://github.com/sgl-project/sglang/pull/27164"
# ///
"""A tensor-parallel serving loop; rank 0 takes requests in and every rank keeps its own queue."""
import logging
import os
import time
from collections import deque
from dataclasses import dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist

log = logging.getLogger("serve")


@dataclass
class Request:
    rid: str
    tokens: list
    max_new: int
    adapter: str = "base"
    arrived: float = 0.0
    out: list = field(default_factory=list)

    @property
    def finished(self) -> bool:
        return len(self.out) >= self.max_new


@dataclass
class Limits:
    waiting_s: float = 1.5
    max_running: int = 4


class AdapterCache:
    """Adapters are paged in from the rank's local disk; a cold one takes a while."""

    def __init__(self, rank: int):
        self.hot = {"base"}
        self.disk_mbps = {"ssd": 900.0, "hdd": 40.0}[os.environ.get("DISK", "hdd" if rank % 3 == 2 else "ssd")]

    def ensure(self, name: str) -> None:
        if name not in self.hot:
            time.sleep(90.0 / self.disk_mbps)
            self.hot.add(name)


class Scheduler:
    def __init__(self, rank: int, limits: Limits):
        self.rank, self.limits = rank, limits
        self.waiting: deque = deque()
        self.running: list = []
        self.adapters = AdapterCache(rank)

    def take(self, fresh: list) -> None:
        for req in fresh:
            req.arrived = time.perf_counter()
            self.waiting.append(req)

    def admit(self) -> None:
        while self.waiting and len(self.running) < self.limits.max_running:
            req = self.waiting.popleft()
            self.adapters.ensure(req.adapter)
            now = time.perf_counter()
            if now - req.arrived > self.limits.waiting_s:
                log.warning("rank %d: %s waited too long, dropped", self.rank, req.rid)
                continue
            self.running.append(req)

    def retire(self) -> None:
        for req in [r for r in self.running if r.finished]:
            self.running.remove(req)
            if self.rank == 0:
                log.info("%s: %d tokens", req.rid, len(req.out))


class ShardedHead:
    def __init__(self, dim: int = 24, vocab: int = 50):
        gen = torch.Generator().manual_seed(dist.get_rank())
        self.w = torch.randn(dim, vocab, generator=gen)
        self.dim = dim

    def forward(self, batch: list) -> list:
        hidden = torch.stack([torch.full((self.dim,), float(sum(r.tokens) + len(r.out))).sin() for r in batch])
        logits = hidden @ self.w
        dist.all_reduce(logits)
        return logits.argmax(1).tolist()


class Server:
    def __init__(self, limits: Limits):
        self.rank = dist.get_rank()
        self.sched = Scheduler(self.rank, limits)
        self.head = ShardedHead()
        self.tick = 0

    def receive(self) -> list:
        fresh = None
        if self.rank == 0:
            fresh = [Request(f"req{self.tick}", [self.tick, 3], 5, "legal" if self.tick == 24 else "base")] if self.tick % 6 == 0 else []
        box = [fresh]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def step(self) -> None:
        self.sched.take(self.receive())
        self.sched.admit()
        batch = self.sched.running
        if not batch:
            return
        for req, tok in zip(batch, self.head.forward(batch)):
            req.out.append(tok)
        self.sched.retire()

    def loop(self, ticks: int) -> None:
        while self.tick < ticks:
            self.step()
            self.tick += 1


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    dist.init_process_group("gloo", timeout=timedelta(hours=2))
    Server(Limits()).loop(ticks=400)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
