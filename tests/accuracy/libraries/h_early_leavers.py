# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 5"
# requires = ["numpy"]
# outcome = "healthy"
# watch = "--give-up-after 10"
# ///
"""A farm: the coordinator hands out simulation jobs of very different length; a worker leaves when there is no more."""
import logging
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

log = logging.getLogger("farm")
JOBS = [("short", 1.0)] * 6 + [("long", 16.0), ("short", 2.0), ("medium", 5.0), ("short", 1.0), ("medium", 7.0)]
STOP = -1


def simulate(index: int, seconds: float, folder: Path) -> float:
    """A random walk with snapshots on disk, as long as its time lasts."""
    rng, end, total, step = np.random.default_rng(index), time.monotonic() + seconds, 0.0, 0
    path = folder / f"job{index}.npy"
    state = rng.normal(size=(64, 64))
    while time.monotonic() < end:
        state = np.tanh(state @ rng.normal(size=(64, 64)) / 8)
        total += float(state.mean())
        step += 1
        if step % 50 == 0:
            np.save(path, state)
    return total


class Coordinator:
    """Worker sends (its id, last job, result); gets the next job's number, or STOP."""

    def run(self) -> dict:
        results, todo, active = {}, list(range(len(JOBS))), dist.get_world_size() - 1
        while active:
            report = torch.zeros(2, dtype=torch.double)
            worker = dist.recv(report)
            if report[0] >= 0:
                results[int(report[0])] = float(report[1])
            job = todo.pop(0) if todo else STOP
            dist.send(torch.tensor([job]), dst=worker)
            if job == STOP:
                active -= 1
                log.info("worker %d is released, %d left", worker, active)
        return results


class Worker:
    def __init__(self, folder: Path):
        self.folder = folder

    def run(self) -> int:
        report, count = torch.tensor([-1.0, 0.0], dtype=torch.double), 0
        while True:
            dist.send(report, dst=0)
            job = torch.zeros(1, dtype=torch.long)
            dist.recv(job, src=0)
            if job.item() == STOP:
                return count
            kind, seconds = JOBS[job.item()]
            value = simulate(job.item(), seconds, self.folder)
            report = torch.tensor([job.item(), value], dtype=torch.double)
            count += 1


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = Path(tempfile.mkdtemp(prefix=f"farm{rank}-", dir=os.environ.get("TMPDIR")))
    if rank == 0:
        results = Coordinator().run()
        log.info("%d of %d jobs done", len(results), len(JOBS))
        end = time.monotonic() + 8  # a last look at all results, alone
        while time.monotonic() < end:
            np.linalg.svd(np.random.default_rng(1).normal(size=(120, 120)))
    else:
        log.info("worker %d did %d jobs", rank, Worker(folder).run())


if __name__ == "__main__":
    main()
