# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD106", "HD101", "HD102"]
# culprits_any = [[2], [0, 1, 3]]
# lines = [65, 85, 108, 115, 116, 123]
# branch = ["fitting == 0 and self.transfers.outstanding", "fitting == 0", "need > free"]
# source = "https://github.com/NVIDIA/TensorRT-LLM/pull/14020"
# ///
import logging
import os
import random
from collections import deque
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

log = logging.getLogger("ctx_executor")


@dataclass(frozen=True)
class Request:
    rid: int
    tokens: int


@dataclass
class PoolConfig:
    bytes_total: int = 28 * 4096
    bytes_per_block: int = 4096
    tokens_per_block: int = 16
    pinned_bytes: int = 0


class BlockPool:
    def __init__(self, cfg):
        usable = cfg.bytes_total - cfg.pinned_bytes
        self.cfg = cfg
        self.free = usable // cfg.bytes_per_block
        self.held = {}

    def blocks_for(self, req):
        return -(-req.tokens // self.cfg.tokens_per_block)

    def take(self, req):
        n = self.blocks_for(req)
        self.free -= n
        self.held[req.rid] = n

    def give_back(self, rid):
        self.free += self.held.pop(rid)


class CapacityScheduler:
    def __init__(self, pool):
        self.pool = pool

    def pick(self, waiting):
        free, chosen = self.pool.free, []
        for req in waiting:
            need = self.pool.blocks_for(req)
            if need > free:
                break
            free -= need
            chosen.append(req)
        return chosen


class TransferTracker:
    """Context caches that are on their way to the generation workers."""

    def __init__(self, world):
        self.world = world
        self.outstanding = deque()

    def start(self, req):
        self.outstanding.append(req.rid)

    def poll(self):
        mine = torch.tensor([len(self.outstanding), self.outstanding[0]])
        others = [torch.empty_like(mine) for _ in range(self.world)]
        dist.all_gather(others, mine)
        done = []
        while len(self.outstanding) > 1:
            done.append(self.outstanding.popleft())
        return done


class ContextExecutor:
    def __init__(self, rank, world, pool):
        self.rank, self.world = rank, world
        self.pool = pool
        self.scheduler = CapacityScheduler(pool)
        self.transfers = TransferTracker(world)
        self.waiting = deque()
        self.weight = torch.full((32,), 1.0 / world)

    def _admit(self, batch):
        self.waiting.extend(batch)

    def _forward(self, chosen):
        hidden = torch.zeros(8, 32)
        for req in chosen:
            hidden += req.tokens * self.weight
        dist.all_reduce(hidden)
        return hidden.mean().item()

    def iteration(self, incoming):
        self._admit(incoming)
        chosen = self.scheduler.pick(self.waiting)
        fitting = len(chosen)
        if fitting == 0 and self.transfers.outstanding:
            for rid in self.transfers.poll():
                self.pool.give_back(rid)
            return None
        for req in chosen:
            self.waiting.popleft()
            self.pool.take(req)
            self.transfers.start(req)
        return self._forward(chosen)


def memory_plan(rank, world):
    cfg = PoolConfig()
    names = ["embed", "norm", "lm_head_bias", "rotary"]
    sizes = {"embed": 128, "norm": 256, "lm_head_bias": 4608, "rotary": 64}
    cfg.pinned_bytes = sizes[names[rank % len(names)]]
    return cfg


def traffic(seed, n):
    rng = random.Random(seed)
    rid = 0
    for _ in range(n):
        batch = []
        for _ in range(rng.choice([0, 1, 1, 2])):
            batch.append(Request(rid, rng.choice([16, 32, 48, 64])))
            rid += 1
        yield batch


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo", timeout=timedelta(hours=3))
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    executor = ContextExecutor(rank, world, BlockPool(memory_plan(rank, world)))
    for i, batch in enumerate(traffic(int(os.environ.get("TRAFFIC_SEED", 11)), 5000)):
        out = executor.iteration(batch)
        if i % 10 == 0 and rank == 0:
            log.info("iter %d waiting=%d out=%s", i, len(executor.waiting), out)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
