# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "healthy"
# watch = "--give-up-after 10"
# ///
"""Distillation: a teacher script writes its logits to a file for a while; students poll for the file, then train."""
import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist

log = logging.getLogger("distil")
ROWS, CLASSES = 4096, 16
TEACHER = """
import random, sys, time
target, seconds = sys.argv[1], float(sys.argv[2])
end, rng, rows = time.monotonic() + seconds, random.Random(0), 0
with open(target + ".part", "w") as out:
    while time.monotonic() < end or rows < %d:
        out.write(" ".join(f"{rng.gauss(0, 1):.4f}" for _ in range(%d)) + "\\n")
        rows += 1
import os
os.rename(target + ".part", target)
""" % (ROWS, CLASSES)


class Heartbeat(threading.Thread):
    """Writes the rank's state every half second, as the cluster's dashboard likes it."""

    def __init__(self, path: Path):
        super().__init__(daemon=True, name="heartbeat")
        self.path, self.state = path, "start"

    def run(self) -> None:
        while True:
            self.path.write_text(f"{time.time():.1f} {self.state}\n")
            time.sleep(0.5)


def start_teacher(target: Path) -> subprocess.Popen:
    script = target.with_name("teacher.py")
    script.write_text(TEACHER)
    return subprocess.Popen([sys.executable, str(script), str(target), "20"])


def wait_for(target: Path, beat: Heartbeat) -> list[str]:
    beat.state = "waiting for the teacher"
    while not target.exists():
        time.sleep(0.25)
    with target.open() as lines:
        return [line for _, line in zip(range(ROWS), lines)]


def students(rows: list[str], seconds: float = 8.0) -> int:
    rank, world = dist.get_rank(), dist.get_world_size()
    soft = torch.tensor([[float(v) for v in row.split()] for row in rows[rank::world]]).softmax(-1)
    x = torch.randn(len(soft), 32, generator=torch.Generator().manual_seed(rank))
    weight, steps, end = torch.zeros(32, CLASSES), 0, time.monotonic() + seconds
    while True:
        grad = x.T @ ((x @ weight).softmax(-1) - soft) / len(x)
        dist.all_reduce(grad)
        weight -= 0.5 * grad / world
        steps += 1
        over = torch.tensor([int(rank == 0 and time.monotonic() > end)])
        if rank == 0:
            dist.broadcast(over, src=0)
        else:
            dist.broadcast(over, src=0)
        if over.item():
            return steps


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    base = Path(os.environ.get("TMPDIR", tempfile.gettempdir()))
    where = [tempfile.mkdtemp(prefix="distil-", dir=base) if rank == 0 else None]
    dist.broadcast_object_list(where, src=0)
    folder = Path(where[0])
    beat = Heartbeat(folder / f"beat{rank}")
    beat.start()
    teacher = start_teacher(folder / "logits.txt") if rank == 1 else None
    rows = wait_for(folder / "logits.txt", beat)
    if teacher is not None and teacher.wait() != 0:
        raise RuntimeError("the teacher failed")
    beat.state = "training"
    log.info("rank %d: %d steps over %d rows", rank, students(rows), len(rows))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
