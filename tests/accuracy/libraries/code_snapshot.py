# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# outcome = "hang"
# causes_any = ["HD509", "HD507"]
# culprits = [0]
# lines = [39, 40, 42, 54, 57, 94]
# source = "python bpo-1606 (Popen.wait with stdout=PIPE)"
# ///
"""Experiment tracking: the first process records the state of the source tree before training starts."""
import argparse
import json
import logging
import os
import pathlib
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("track")
LISTING = """
import sys
for number in range(int(sys.argv[1])):
    print(f"src/package/module_{number:05d}.py  sha1={number * 2654435761 % 2**32:08x}  mode=100644")
"""


class Command:
    """Runs a tool, checks its status and returns what it printed."""

    def __init__(self, *words):
        self.words = words

    def output(self):
        process = subprocess.Popen(self.words, stdout=subprocess.PIPE, text=True)
        if process.wait() != 0:
            raise RuntimeError(f"{self.words[0]} ended with {process.returncode}")
        return process.stdout.read()


class Tracker:
    def __init__(self, folder, files):
        self.folder, self.files = pathlib.Path(folder), files
        self.metrics = open(self.folder / "metrics.jsonl", "a")

    def versions(self):
        return Command(sys.executable, "--version").output().strip()

    def sources(self):
        return Command(sys.executable, "-c", LISTING, str(self.files)).output().splitlines()

    def begin(self, config):
        record = {"config": config, "python": self.versions(), "sources": self.sources()}
        (self.folder / "run.json").write_text(json.dumps(record))

    def log(self, **values):
        self.metrics.write(json.dumps(values) + "\n")
        self.metrics.flush()


class Silent:
    def begin(self, config):
        pass

    def log(self, **values):
        pass


def train(tracker, args):
    torch.manual_seed(0)
    model = DDP(nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(args.steps):
        loss = model(torch.randn(32, 16)).logsumexp(dim=1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tracker.log(step=step, loss=loss.item())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--files", type=int, default=2400)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format=f"[{os.environ['RANK']}] %(message)s")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    tracker = Tracker(tempfile.mkdtemp(prefix="run-"), args.files) if rank == 0 else Silent()
    tracker.begin(vars(args))
    log.info("tracking is set up")
    train(tracker, args)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
