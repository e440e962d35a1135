# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "healthy"
# watch = "--give-up-after 10"
# ///
"""The first rank of each node looks for good block sizes in helper processes for a fixed time, then all ranks train."""
import hashlib
import logging
import multiprocessing as mp
import os
import tempfile
import time
import zlib
from pathlib import Path

import torch
import torch.distributed as dist

log = logging.getLogger("tuning")
RANKS_PER_NODE = 2
BUDGET = {0: 9.0, 1: 18.0}


def search(job: tuple) -> tuple:
    """Tries compression levels on slices of a blob until the time is over; notes every trial."""
    seed, seconds, folder = job
    end, trials, best = time.monotonic() + seconds, 0, None
    blob = hashlib.sha512(str(seed).encode()).digest() * 4000
    with open(Path(folder) / f"trials-{seed}.txt", "w") as notes:
        while time.monotonic() < end:
            level = 1 + trials % 9
            size = len(zlib.compress(blob[trials % 64 :], level))
            best = min(best or (size, level), (size, level))
            notes.write(f"{level} {size}\n")
            notes.flush()
            trials += 1
    return best, trials


class Node:
    def __init__(self):
        self.rank = dist.get_rank()
        self.index, self.local = divmod(self.rank, RANKS_PER_NODE)

    def tune(self) -> tuple:
        result = [None]
        leader = self.index * RANKS_PER_NODE
        if self.local == 0:
            folder = tempfile.mkdtemp(prefix=f"node{self.index}-", dir=os.environ.get("TMPDIR"))
            jobs = [(self.index * 10 + i, BUDGET[self.index], folder) for i in range(2)]
            with mp.get_context("fork").Pool(2) as pool:
                found = pool.map(search, jobs, chunksize=1)
            log.info("node %d: %s", self.index, found)
            result = [min(best for best, _ in found)]
        for node in range(dist.get_world_size() // RANKS_PER_NODE):
            box = result if node * RANKS_PER_NODE == leader else [None]
            dist.broadcast_object_list(box, src=node * RANKS_PER_NODE)
            if node == self.index:
                result = box
        return result[0]


def train(seconds: float = 12.0) -> int:
    weight, steps, go_on = torch.zeros(64), 0, torch.ones(1)
    end = time.monotonic() + seconds
    while go_on.item():
        x = torch.randn(128, 64)
        grad = x.T @ (x @ weight - x.sum(1)) / len(x)
        dist.all_reduce(grad)
        weight -= 0.02 * grad
        steps += 1
        go_on = torch.tensor([float(time.monotonic() < end)])
        dist.all_reduce(go_on, op=dist.ReduceOp.MIN)
    return steps


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    size, level = Node().tune()
    log.info("rank %d: level %d, %d bytes", dist.get_rank(), level, size)
    steps = train()
    log.info("rank %d: %d steps", dist.get_rank(), steps)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
