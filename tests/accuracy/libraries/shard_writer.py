# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD103", "HD101"]
# culprits = [1]
# lines = [33, 34, 35, 36, 54, 56, 60, 61, 79, 106]
# source = "NVIDIA/cosmos-framework#65 (a failure of one rank of which the others do not hear), DCP on a full disk"
# ///
"""Sharded checkpoints: every rank writes its own file on its node's disk, rank 0 publishes the manifest."""
import argparse
import io
import json
import logging
import os
import pathlib
import tempfile

import torch
import torch.distributed as dist

log = logging.getLogger("checkpoint")


class Disk:
    """The scratch disk of a node; `quota` is what an administrator has left for this user."""

    def __init__(self, folder, rank, quota):
        self.folder = pathlib.Path(folder)
        self.rank, self.quota, self.used = rank, quota, 0

    def write(self, name, data):
        target = self.folder / name
        if self.used + len(data) > self.quota:
            target = pathlib.Path("/dev/full")
        with open(target, "wb", buffering=0) as out:
            out.write(data)
        self.used += len(data)
        return target


class ShardedCheckpoint:
    def __init__(self, disk, rank, world):
        self.disk, self.rank, self.world = disk, rank, world
        self.writers = dist.new_group(list(range(world)))
        self.written, self.failed = [], 0

    def serialize(self, state):
        buffer = io.BytesIO()
        torch.save(state, buffer)
        return buffer.getvalue()

    def save(self, step, state):
        try:
            path = self.disk.write(f"step{step}-shard{self.rank}.pt", self.serialize(state))
            paths = [None] * self.world
            dist.all_gather_object(paths, str(path), group=self.writers)
            if self.rank == 0:
                (self.disk.folder / f"step{step}.json").write_text(json.dumps(paths))
            self.written.append(step)
        except OSError:
            self.failed += 1

    def summary(self):
        return f"{len(self.written)} checkpoints, {self.failed} left out"


class ShardedModel:
    def __init__(self, rank, world, width):
        torch.manual_seed(rank)
        self.weight = torch.randn(width // world, width, requires_grad=True)
        self.momentum = torch.zeros_like(self.weight)

    def state(self):
        return {"weight": self.weight.detach().clone(), "momentum": self.momentum.clone()}

    def step(self, x):
        partial = x @ self.weight.detach().T
        full = [torch.empty_like(partial) for _ in range(dist.get_world_size())]
        dist.all_gather(full, partial)
        loss = (x @ self.weight.T).square().mean()
        loss.backward()
        self.momentum.mul_(0.9).add_(self.weight.grad)
        with torch.no_grad():
            self.weight -= 0.01 * self.momentum
        self.weight.grad = None
        return torch.cat(full, dim=1).square().mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--save-every", type=int, default=10)
    parser.add_argument("--width", type=int, default=96)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format=f"[{os.environ['RANK']}] %(message)s")
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    quotas = {1: 150_000}
    disk = Disk(tempfile.mkdtemp(prefix=f"scratch{rank}-"), rank, quotas.get(rank, 10_000_000))
    checkpoint = ShardedCheckpoint(disk, rank, world)
    model = ShardedModel(rank, world, args.width)
    generator = torch.Generator().manual_seed(3)
    for step in range(args.steps):
        loss = model.step(torch.randn(8, args.width, generator=generator))
        if step % args.save_every == args.save_every - 1:
            checkpoint.save(step, model.state())
    log.info("loss %.3f, %s", loss, checkpoint.summary())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
