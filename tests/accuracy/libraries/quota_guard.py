# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["numpy"]
# outcome = "hang"
# causes_any = ["HD101", "HD102", "HD106"]
# culprits = [2]
# lines = [110, 100, 91, 50, 111, 43, 44, 62]
# branch = ["self.guard.expired", "f.stat().st_size"]
# source = "https://github.com/ComputationalRadiationPhysics/picongpu/pull/3642"
# ///
"""Training on variable-length audio that keeps features on scratch and stops with a checkpoint when scratch is full."""
import logging
import multiprocessing as mp
import os
import signal
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("audio")
CORPORA = {0: (40, 60), 1: (30, 50), 2: (5000, 6000), 3: (45, 70)}  # frames of a clip, shortest and longest


class QuotaGuard:
    """A helper process watches the scratch folder and signals its rank once the quota is used up."""

    def __init__(self, folder: Path, quota: int):
        self.expired = False
        signal.signal(signal.SIGUSR1, self._on_signal)
        watcher = mp.get_context("fork").Process(
            target=self._watch, args=(folder, quota, os.getpid()), name="quota-watch", daemon=True
        )
        watcher.start()

    @staticmethod
    def _watch(folder: Path, quota: int, rank_pid: int) -> None:
        while os.getppid() == rank_pid:
            if sum(f.stat().st_size for f in folder.iterdir()) > quota:
                os.kill(rank_pid, signal.SIGUSR1)
                return
            time.sleep(0.2)

    def _on_signal(self, signum, frame) -> None:
        log.info("rank %s: scratch quota used up, stopping at the next step", os.environ["RANK"])
        self.expired = True


class Clips:
    def __init__(self, rank: int, folder: Path):
        self.folder = folder
        self.rng = np.random.default_rng(rank)
        self.low, self.high = CORPORA[rank]

    def batch(self, index: int, size: int = 4) -> torch.Tensor:
        frames = int(self.rng.integers(self.low, self.high))
        features = self.rng.normal(size=(size, frames, 40)).astype(np.float32)
        np.save(self.folder / f"features-{index:05d}.npy", features)
        return torch.from_numpy(features)


class Encoder(nn.Module):
    def __init__(self, width: int = 96):
        super().__init__()
        self.inp = nn.Linear(40, width)
        self.conv = nn.Conv1d(width, width, 5, padding=2)
        self.out = nn.Linear(width, 40)

    def forward(self, x):
        h = torch.relu(self.conv(self.inp(x).transpose(1, 2)))
        return self.out(h.transpose(1, 2))


class Trainer:
    def __init__(self, folder: Path):
        torch.manual_seed(0)
        self.rank, self.folder = dist.get_rank(), folder
        self.model, self.clips = Encoder(), Clips(self.rank, folder)
        self.guard = QuotaGuard(folder, quota=24_000_000)

    def step(self, index: int) -> float:
        x = self.clips.batch(index)
        loss = (self.model(x) - x).square().mean()
        self.model.zero_grad()
        loss.backward()
        flat = torch.cat([p.grad.flatten() for p in self.model.parameters()])
        dist.all_reduce(flat)
        at = 0
        with torch.no_grad():
            for p in self.model.parameters():
                p -= 0.01 * flat[at : at + p.numel()].view_as(p) / dist.get_world_size()
                at += p.numel()
        return loss.item()

    def checkpoint(self, step: int) -> None:
        dist.barrier()
        if self.rank == 0:
            torch.save(self.model.state_dict(), self.folder / f"step{step}.pt")
        dist.barrier()

    def run(self, steps: int = 5000) -> int:
        for step in range(steps):
            loss = self.step(step)
            if step % 10 == 0:
                log.info("rank %d step %d loss %.3f", self.rank, step, loss)
            if self.guard.expired:
                self.checkpoint(step)
                return step
        self.checkpoint(steps)
        return steps


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    root = os.environ.get("TMPDIR", tempfile.gettempdir())
    trainer = Trainer(Path(tempfile.mkdtemp(prefix="audio-", dir=root)))
    stopped = trainer.run()
    log.info("rank %d: left at step %d", trainer.rank, stopped)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
