# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD101", "HD106", "HD102"]
# culprits_any = [[2], [0, 1]]
# lines = [53, 54, 55, 49, 88, 91]
# branch = ["self.clock.elapsed() < self.clock.interval"]
# source = "marin-community/levanter#76, idaholab/moose#26588 (review)"
# ///
"""Checkpoints by the clock: save whenever the interval has gone by since the last save."""
import argparse
import logging
import os
import pathlib
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("train")


class Clock:
    def __init__(self, interval):
        self.interval = interval
        self.last = time.monotonic()

    def elapsed(self):
        return time.monotonic() - self.last

    def restart(self):
        self.last = time.monotonic()


class Checkpointer:
    def __init__(self, folder, model, optimizer, interval):
        self.folder, self.model, self.optimizer = pathlib.Path(folder), model, optimizer
        self.clock = Clock(interval)
        self.saved = []

    def consolidate(self):
        """The optimizer's state is kept in parts, as with ZeRO; all parts are needed for a file."""
        state = self.optimizer.state_dict()["state"]
        steps = [int(entry["step"]) for entry in state.values()]
        parts = [None] * dist.get_world_size()
        dist.all_gather_object(parts, steps)
        return parts

    def maybe_save(self, step):
        if self.clock.elapsed() < self.clock.interval:
            return False
        parts = self.consolidate()
        if dist.get_rank() == 0:
            torch.save({"model": self.model.module.state_dict(), "parts": parts}, self.folder / f"step{step}.pt")
        self.clock.restart()
        self.saved.append(step)
        return True


class Vocabulary:
    """Read from a shared disk; far nodes need longer."""

    def __init__(self, rank, seconds):
        time.sleep(seconds[rank % len(seconds)])
        self.words = [f"w{number}" for number in range(200)]

    def encode(self, step):
        return torch.tensor([(step * 13 + number * 7) % len(self.words) for number in range(32)])


class Tagger(nn.Module):
    def __init__(self, words, width=16, tags=5):
        super().__init__()
        self.embed, self.head = nn.Embedding(words, width), nn.Linear(width, tags)

    def forward(self, words):
        return self.head(self.embed(words))


def fit(model, optimizer, vocabulary, checkpointer, args):
    for step in range(args.steps):
        words = vocabulary.encode(step)
        loss = nn.functional.cross_entropy(model(words), words % 5)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(args.step_seconds)
        if checkpointer.maybe_save(step):
            log.info("step %d loss %.3f saved", step, loss.item())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--interval", type=float, default=2.0)
    parser.add_argument("--step-seconds", type=float, default=0.1)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format=f"[{os.environ['RANK']}] %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(Tagger(200))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    vocabulary = Vocabulary(dist.get_rank(), [0.1, 0.1, 0.9])
    checkpointer = Checkpointer(tempfile.mkdtemp(prefix="saves-"), model, optimizer, args.interval)
    fit(model, optimizer, vocabulary, checkpointer, args)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
