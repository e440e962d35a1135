# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 5"
# requires = []
# outcome = "hang"
# causes_any = ["HD102"]
# culprits = [3]
# culprits_any = [[0, 1, 2, 4]]
# lines = [74, 77, 83, 95, 109, 110, 112]
# branch = ["self.clock.elapsed()", "trainer.within_budget()"]
# source = "https://github.com/IAS-Astrophysics/athenak/issues/572"
# ///
"""Fits a linear surrogate of simulation snapshots for a fixed budget of wall time, as the batch queue wants it, then pools the residuals."""
import json
import logging
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

log = logging.getLogger("surrogate")


@dataclass
class Budget:
    seconds: float = 1.2
    max_iterations: int = 1_000_000


class WallClock:
    def __init__(self):
        self.started = time.monotonic()

    def elapsed(self):
        return time.monotonic() - self.started


class SnapshotArchive:
    """Snapshots of one subdomain, kept as JSON lines by the simulation."""

    SIZES = (200, 240, 180, 16000, 220)

    def __init__(self, root, rank):
        self.path = Path(root) / f"domain_{rank:02d}.jsonl"
        self.write(self.SIZES[rank % len(self.SIZES)], rank)

    def write(self, count, rank):
        gen = torch.Generator().manual_seed(rank)
        with self.path.open("w") as out:
            for start in range(0, count, 100):
                x = torch.randn(100, 64, generator=gen)
                y = x @ torch.linspace(-1, 1, 64) + 0.05 * torch.randn(100, generator=gen)
                for row, target in zip(x.tolist(), y.tolist()):
                    out.write(json.dumps({"x": row, "y": target}) + "\n")

    def load(self):
        xs, ys = [], []
        with self.path.open() as lines:
            for line in lines:
                record = json.loads(line)
                xs.append(record["x"])
                ys.append(record["y"])
        return torch.tensor(xs), torch.tensor(ys)


class Trainer:
    def __init__(self, x, y, budget):
        self.x, self.y, self.budget = x, y, budget
        self.weights = torch.zeros(x.shape[1])
        self.iteration = 0
        self.clock = WallClock()

    def within_budget(self):
        return self.iteration < self.budget.max_iterations and self.clock.elapsed() < self.budget.seconds

    def iterate(self):
        rows = torch.randint(0, len(self.x), (128,))
        residual = self.x[rows] @ self.weights - self.y[rows]
        gradient = self.x[rows].t() @ residual / len(rows)
        dist.all_reduce(gradient)
        self.weights -= 0.05 * gradient / dist.get_world_size()
        self.iteration += 1
        time.sleep(0.002)       # politeness towards the solver on the same node

    def residual(self):
        return ((self.x @ self.weights - self.y) ** 2).mean()


def pool_residuals(trainer):
    mine = trainer.residual()
    parts = [torch.zeros_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, mine)
    return torch.stack(parts)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO, format=f"[{rank}] %(asctime)s %(message)s")
    root = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / f"snapshots-{os.environ['MASTER_PORT']}"
    root.mkdir(parents=True, exist_ok=True)
    archive = SnapshotArchive(root, rank)
    x, y = archive.load()
    log.info("%d snapshots", len(x))
    trainer = Trainer(x, y, Budget())
    while trainer.within_budget():
        trainer.iterate()
    log.info("stopping after %d iterations", trainer.iteration)
    residuals = pool_residuals(trainer)
    if rank == 0:
        log.info("mean squared residuals %s", [round(v, 4) for v in residuals.tolist()])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
