# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD102", "HD101"]
# culprits_any = [[2], [0, 1]]
# lines = [38, 40, 56, 60, 67, 76, 80, 82, 89, 107, 108]
# branch = ["epoch in range(self.start, self.epochs)", "self.used() > self.quota"]
# source = "verl-project/verl#500 (checkpoints on the nodes' own disks)"
# ///
"""Training with checkpoints on the disk of each node; a second session goes on where the first one ended."""
import argparse
import dataclasses
import logging
import os
import pathlib
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn

log = logging.getLogger("session")


@dataclasses.dataclass
class Disk:
    """A node's scratch folder with a quota in bytes."""

    root: pathlib.Path
    quota: int

    def used(self):
        return sum(path.stat().st_size for path in self.root.glob("*.pt"))

    def save(self, name, state):
        path = self.root / name
        torch.save(state, path)
        if self.used() > self.quota:
            path.unlink()
            raise OSError("quota")

    def newest(self):
        return max(self.root.glob("*.pt"), default=None)


class Session:
    def __init__(self, disk, epochs, rank, world):
        self.disk, self.epochs, self.rank, self.world = disk, epochs, rank, world
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 12))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.02, momentum=0.9)
        self.start = 0
        self.losses = []

    def resume(self):
        path = self.disk.newest()
        if path is not None:
            state = torch.load(path)
            self.model.load_state_dict(state["model"])
            self.start = state["epoch"] + 1

    def step(self, x):
        loss = nn.functional.mse_loss(self.model(x), x)
        self.optimizer.zero_grad()
        loss.backward()
        for p in self.model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= self.world
        self.optimizer.step()
        return loss.item()

    def checkpoint(self, epoch):
        state = {"model": self.model.state_dict(), "epoch": epoch}
        try:
            self.disk.save(f"epoch{epoch:03d}.pt", state)
        except OSError as error:
            log.debug("checkpoint of epoch %d left out: %s", epoch, error)

    def run(self):
        for epoch in range(self.start, self.epochs):
            generator = torch.Generator().manual_seed(epoch * self.world + self.rank)
            loss = sum(self.step(torch.randn(8, 12, generator=generator)) for _ in range(12)) / 12
            self.losses.append(loss)
            self.checkpoint(epoch)
        return self.losses

    def results(self):
        table = [None] * self.world
        dist.all_gather_object(table, self.losses[-1])
        return sum(table) / self.world


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--first", type=int, default=4)
    parser.add_argument("--total", type=int, default=9)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format=f"[{os.environ['RANK']}] %(message)s")
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    root = pathlib.Path(tempfile.gettempdir()) / f"node{rank}-{os.environ['MASTER_PORT']}"
    root.mkdir(exist_ok=True)
    disk = Disk(root, quota=16_000 if rank == 2 else 1_000_000)
    for until in (args.first, args.total):
        session = Session(disk, until, rank, world)
        session.resume()
        session.run()
        mean = session.results()
        if rank == 0:
            log.info("until epoch %d: %.4f", until, mean)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
