# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD508", "HD202"]
# culprits = [3]
# lines = [37, 38, 53, 54, 55, 57, 61]
# branch = ["self.judged", "newest"]
# watch = "--give-up-after 8"
# source = "https://github.com/allenai/open-instruct/pull/541"
# ///
"""Three ranks train and the fourth judges their checkpoints; the verdicts steer the learning rate."""
import logging
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist

log = logging.getLogger("judge")
STEPS, SAVE_EVERY = 1200, 100


class CheckpointFolder:
    def __init__(self, root: Path):
        self.root = root
        root.mkdir(parents=True, exist_ok=True)

    def save(self, step: int, weights: torch.Tensor):
        partial = self.root / f".step_{step}.tmp"
        torch.save(weights, partial)
        partial.rename(self.root / f"step_{step}")

    def newest(self):
        names = sorted(entry.name for entry in self.root.iterdir() if entry.name.startswith("step_"))
        return names[-1] if names else None

    def load(self, name: str) -> torch.Tensor:
        return torch.load(self.root / name)


class Judge:
    """Waits for checkpoints and sends a verdict on each to the leading trainer."""

    def __init__(self, folder: CheckpointFolder, trainer: int):
        self.folder, self.trainer = folder, trainer
        self.judged = None
        self.reference = torch.linspace(-1, 1, 64)

    def await_checkpoint(self) -> str:
        while True:
            newest = self.folder.newest()
            if newest is not None and newest != self.judged:
                return newest
            time.sleep(0.1)

    def run(self, verdicts: int):
        for _ in range(verdicts):
            name = self.await_checkpoint()
            weights = self.folder.load(name)
            error = (weights - self.reference).pow(2).mean()
            self.judged = name
            log.info("%s has error %.5f", name, error.item())
            dist.send(error.reshape(1), self.trainer)


class TrainerRank:
    def __init__(self, folder: CheckpointFolder, rank: int, group, judge: int):
        self.folder, self.rank, self.group, self.judge = folder, rank, group, judge
        self.leader = 0
        self.rate = 0.05
        self.weights = torch.zeros(64)

    def step(self):
        target = torch.linspace(-1, 1, 64) + 0.1 * torch.randn(64)
        gradient = self.weights - target
        dist.all_reduce(gradient, group=self.group)
        self.weights = self.weights - self.rate * gradient / 3

    def consult(self, step: int):
        verdict = torch.zeros(1)
        if self.rank == self.leader:
            self.folder.save(step, self.weights)
            dist.recv(verdict, self.judge)
        dist.broadcast(verdict, self.leader, group=self.group)
        if verdict.item() < 0.01:
            self.rate *= 0.9

    def run(self):
        for step in range(1, STEPS + 1):
            self.step()
            if step % SAVE_EVERY == 0:
                self.consult(step)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    logging.basicConfig(level=logging.INFO, format=f"[rank {rank}] %(message)s")
    folder = CheckpointFolder(Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "checkpoints")
    judge = world - 1
    trainers = dist.new_group(list(range(judge)))
    dist.barrier()
    if rank == judge:
        Judge(folder, trainer=0).run(STEPS // SAVE_EVERY)
    else:
        TrainerRank(folder, rank, trainers, judge).run()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
