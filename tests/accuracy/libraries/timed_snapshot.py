# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD101", "HD102"]
# culprits_any = [[2], [0, 1, 3]]
# lines = [22, 25, 28, 46, 51, 62, 76, 77, 84, 85]
# branch = ["self.timer.due()", "time.monotonic() - self.started >= self.interval"]
# source = "knowledge: why Megatron-LM reduces its exit-duration decision and Lightning broadcasts ModelCheckpoint's train_time_interval decision"
# ///
"""Training with sharded optimizer state and a snapshot every so many seconds."""
import argparse
import time

import torch
import torch.distributed as dist
import torch.nn as nn


class Timer:
    def __init__(self, interval):
        self.interval = interval
        self.started = time.monotonic()

    def due(self):
        return time.monotonic() - self.started >= self.interval

    def reset(self):
        self.started = time.monotonic()


class ShardedMomentum:
    """Every rank keeps the momentum of its slice of the flat parameters."""

    def __init__(self, flat, rank, world, lr=0.05, beta=0.9):
        self.flat, self.lr, self.beta = flat, lr, beta
        self.bounds = [flat.numel() * r // world for r in range(world + 1)]
        self.rank, self.world = rank, world
        self.state = torch.zeros(self.bounds[1] - self.bounds[0])

    def step(self, gradient):
        low, high = self.bounds[self.rank], self.bounds[self.rank + 1]
        part = gradient[low:high] / self.world
        self.state.mul_(self.beta).add_(part)
        delta = torch.zeros_like(self.flat)
        delta[low:high] = self.lr * self.state
        dist.all_reduce(delta)
        self.flat -= delta

    def full_state(self):
        parts = [torch.empty_like(self.state) for _ in range(self.world)]
        dist.all_gather(parts, self.state)
        return torch.cat(parts)


class Trainer:
    def __init__(self, args, rank, world):
        self.rank, self.world = rank, world
        torch.manual_seed(0)
        self.flat = torch.randn(64)
        self.optimizer = ShardedMomentum(self.flat, rank, world)
        self.samples = self.read_shard(args.shard_seconds)
        self.timer = Timer(args.snapshot_seconds)
        self.snapshots = []

    def read_shard(self, seconds):
        time.sleep(seconds)
        generator = torch.Generator().manual_seed(self.rank)
        return torch.randn(512, 64, generator=generator)

    def gradient(self, step):
        time.sleep(0.25)
        rows = self.samples[step * 4 % 512:][:4]
        return rows.T @ (rows @ self.flat) / len(rows)

    def maybe_snapshot(self, step):
        if self.timer.due():
            state = self.optimizer.full_state()
            if self.rank == 0:
                self.snapshots.append((step, self.flat.clone(), state))
            self.timer.reset()

    def run(self, steps):
        for step in range(steps):
            self.optimizer.step(self.gradient(step))
            self.maybe_snapshot(step)
            if self.rank == 0 and step % 4 == 0:
                print(f"step {step} norm {self.flat.norm():.4f} snapshots {len(self.snapshots)}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--snapshot-seconds", type=float, default=2.25)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    args.shard_seconds = (0.1, 0.1, 0.7, 0.1)[rank % 4]
    dist.barrier()
    trainer = Trainer(args, rank, world)
    trainer.run(args.steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
