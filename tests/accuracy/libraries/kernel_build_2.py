# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["numpy"]
# outcome = "hang"
# causes_any = ["HD504", "HD508"]
# culprits = [3]
# lines = [56, 57, 66, 79, 99, 101, 102, 126, 132]
# watch = "--give-up-after 8"
# source = "https://github.com/pytorch/pytorch/issues/189245"
# ///
"""Each rank pre-generates the lookup tables of its own kernel variant in a helper process, then all ranks run a benchmark together."""
import argparse
import logging
import os
import pickle
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import numpy as np

LOG = logging.getLogger("kbuild")


@dataclass(frozen=True)
class KernelSpec:
    name: str
    unroll: int

    @property
    def key(self):
        return f"{self.name}-u{self.unroll}"


VARIANTS = [KernelSpec("rms", 2), KernelSpec("swiglu", 3), KernelSpec("rope", 2), KernelSpec("softcap", 6)]


class Baton:
    """Who creates the file builds; everybody else waits until it is gone."""

    def __init__(self, path):
        self.path = path

    def try_acquire(self):
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL))
            return True
        except FileExistsError:
            return False

    def wait(self):
        while self.path.exists():
            time.sleep(0.1)

    def release(self):
        self.path.unlink()


def generate(spec, folder):
    """Runs inside the helper process, which does without torch to start fast."""
    baton = Baton(folder / "lock")
    if baton.try_acquire():
        try:
            table = []
            for level in range(spec.unroll):
                grid = np.linspace(-8, 8, 4 ** min(level + 3, 9))
                for _ in range(8 ** max(level - 1, 1)):
                    grid = np.tanh(grid[::-1]) + 1e-3 * np.sort(grid)
                table.append(grid)
            (folder / "table.tmp").write_bytes(pickle.dumps(table))
            os.replace(folder / "table.tmp", folder / "table.pkl")
        finally:
            baton.release()
    else:
        baton.wait()


class BuildDirectory:
    def __init__(self, root, spec):
        self.spec = spec
        self.folder = root / spec.key
        self.folder.mkdir(parents=True, exist_ok=True)

    @property
    def product(self):
        return self.folder / "table.pkl"

    def command(self):
        return [sys.executable, os.path.abspath(__file__), "--generate", self.spec.key, "--folder", str(self.folder)]

    def ensure(self, patience=8.0, attempts=2):
        for attempt in range(attempts):
            if self.product.exists():
                break
            limit = patience if attempt + 1 < attempts else None
            try:
                subprocess.run(self.command(), timeout=limit, check=True, env=dict(os.environ, OMP_NUM_THREADS="1"))
            except subprocess.TimeoutExpired:
                LOG.warning("%s took over %.0f s, once more without a limit", self.spec.key, limit)
        return pickle.loads(self.product.read_bytes())


def benchmark(table, rounds=10):
    import torch
    import torch.distributed as dist
    x = torch.linspace(-4, 4, 512, dtype=torch.float64)
    for _ in range(rounds):
        for grid in map(torch.from_numpy, table):
            x = grid[torch.bucketize(x, grid.sort().values).clamp(max=len(grid) - 1)]
    score = x.abs().mean().reshape(1)
    dist.all_reduce(score)
    return score.item() / dist.get_world_size()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--generate")
    ap.add_argument("--folder", type=Path)
    args = ap.parse_args()
    if args.generate:
        spec = next(v for v in VARIANTS if v.key == args.generate)
        return generate(spec, args.folder)
    import torch.distributed as dist
    rank = int(os.environ["RANK"])
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank {rank} %(message)s")
    root = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "kernel_tables"
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    table = BuildDirectory(root, VARIANTS[rank % len(VARIANTS)]).ensure()
    LOG.info("tables ready: %d levels", len(table))
    dist.barrier()
    LOG.info("score %.5f", benchmark(table))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
