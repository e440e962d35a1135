# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["safetensors"]
# outcome = "hang"
# causes_any = ["HD103", "HD101", "HD102"]
# culprits = [1]
# lines = [81, 95, 83, 94, 71, 90]
# source = "https://github.com/PrimeIntellect-ai/prime-rl/pull/1593"
# ///
"""Trains several adapters; every rank keeps its parts in a run folder with a size quota and promotes them to checkpoints."""
import logging
import os
import shutil
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
from safetensors.torch import save_file

log = logging.getLogger("runs")


class Broadcasts:
    """Recent weights of this rank, newest last, below a quota of bytes."""

    def __init__(self, root, quota):
        self.root, self.quota = root, quota
        root.mkdir(parents=True, exist_ok=True)

    def steps(self):
        return sorted(self.root.glob("step_*"))

    def size(self, folder):
        return sum(f.stat().st_size for f in folder.iterdir())

    def add(self, step, state):
        folder = self.root / f"step_{step:04d}"
        folder.mkdir()
        save_file({name: tensor.contiguous() for name, tensor in state.items()}, folder / "weights.safetensors")
        self.trim()

    def trim(self):
        kept = 0
        for folder in reversed(self.steps()):
            kept += self.size(folder)
            if kept > self.quota:
                shutil.rmtree(folder)


class Run:
    def __init__(self, rank, world, base, save_every=6, lag=3):
        self.rank, self.world, self.save_every, self.lag = rank, world, save_every, lag
        self.home = base / f"rank_{rank}"
        self.broadcasts = Broadcasts(self.home / "broadcasts", quota=120_000)
        rows = [64, 640, 80][rank % 3]  # adapter vocabularies of the three customers
        torch.manual_seed(rank)
        self.backbone = torch.zeros(16)
        self.adapter = nn.Embedding(rows, 16)

    def train_step(self, step):
        ids = torch.randint(0, self.adapter.num_embeddings, (32,))
        out = self.adapter(ids) + self.backbone
        loss = (out - 1).square().mean()
        self.adapter.zero_grad()
        loss.backward()
        with torch.no_grad():
            self.adapter.weight -= 0.5 * self.adapter.weight.grad
        shared = (out.detach() - 1).mean(0)
        dist.all_reduce(shared)
        self.backbone -= 0.1 * shared / self.world
        return loss.item()

    def save(self, step):
        """Promote the weights that the evaluators have confirmed, a few steps old."""
        confirmed = step - self.lag
        source = self.home / "broadcasts" / f"step_{confirmed:04d}"
        target = self.home / "checkpoints" / f"step_{confirmed:04d}"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, target)
        save_file({"backbone": self.backbone, "step": torch.tensor(confirmed)}, target / "state.safetensors")
        dist.barrier()  # all parts are in place
        if self.rank == 0:
            (self.home.parent / "LATEST").write_text(str(confirmed))
        log.info("checkpoint of step %d complete", confirmed)

    def fit(self, steps):
        for step in range(1, steps + 1):
            loss = self.train_step(step)
            self.broadcasts.add(step, {"adapter": self.adapter.weight.detach(), "backbone": self.backbone})
            if step % self.save_every == 0:
                try:
                    self.save(step)
                except OSError as problem:
                    log.warning("checkpoint at step %d failed, training goes on: %s", step, problem)
            if step % 5 == 0:
                log.info("step %d loss %.4f", step, loss)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO, format=f"(rank {rank}) %(message)s")
    base = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "runs"
    Run(rank, dist.get_world_size(), base).fit(steps=40)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
