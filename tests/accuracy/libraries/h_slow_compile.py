# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "healthy"
# ///
"""One rank per node runs a slow external build under a file lock; the others wait for the lock, then use the result."""
import argparse
import contextlib
import fcntl
import logging
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist

log = logging.getLogger("build")
BUILD = """
import pathlib, sys, time
for unit in range(int(sys.argv[2])):
    time.sleep(float(sys.argv[3]))
pathlib.Path(sys.argv[1]).write_text("units " + sys.argv[2])
"""


@contextlib.contextmanager
def exclusive(path):
    with open(path, "a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(handle, fcntl.LOCK_UN)


class Builder:
    def __init__(self, folder, units, seconds):
        self.folder, self.units, self.seconds = pathlib.Path(folder), units, seconds
        self.folder.mkdir(parents=True, exist_ok=True)

    def build(self, target):
        words = [sys.executable, "-c", BUILD, str(target), str(self.units), str(self.seconds)]
        subprocess.run(words, check=True)

    def get(self, name):
        target = self.folder / f"{name}.so"
        with exclusive(self.folder / f"{name}.lock"):
            if not target.exists():
                started = time.monotonic()
                self.build(target)
                log.info("built %s in %.1f s", name, time.monotonic() - started)
        return target.read_text()


class Engine:
    def __init__(self, kernels):
        torch.manual_seed(0)
        self.kernels = kernels
        self.weight = torch.randn(24, 24)

    def run(self, steps):
        state = torch.ones(24)
        for _ in range(steps):
            state = torch.tanh(self.weight @ state)
            dist.all_reduce(state)
            state /= dist.get_world_size()
        return float(state.sum())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--units", type=int, default=22)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format=f"[{os.environ['RANK']}] %(message)s")
    dist.init_process_group("gloo")
    folder = pathlib.Path(tempfile.gettempdir()) / f"build-{os.environ['MASTER_PORT']}"
    builder = Builder(folder, args.units, args.seconds)
    engine = Engine([builder.get("attention")])
    log.info("result %.3f", engine.run(args.steps))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
