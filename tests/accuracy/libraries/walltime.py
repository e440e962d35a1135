# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD101", "HD102"]
# culprits = [1]
# lines = [88, 99, 100]
# branch = ["self.guard.expired"]
# source = "https://github.com/kyutai-labs/pocket-tts/pull/277"
# ///
"""Walltime guard: every rank sets an alarm so early that its own shard can still be written. Rank 1 has the largest shard, its
alarm comes first, and it alone goes to the emergency checkpoint, which begins with a barrier."""
import logging
import os
import signal
import tempfile
import time
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("walltime")


@dataclass
class JobConfig:
    walltime: float = float(os.environ.get("JOB_SECONDS", "40"))
    disk_bytes_per_second: float = 2_000.0
    steps: int = 100_000
    pace: float = 0.05
    width: int = 12
    table_rows: tuple = (20, 1400, 60)
    lr: float = 0.05


class WalltimeGuard:
    """Raises its flag when what is left of the walltime is just enough to write `nbytes`."""

    def __init__(self, walltime, nbytes, speed):
        self.expired = False
        self.reserve = 2.0 + nbytes / speed
        signal.signal(signal.SIGALRM, self._ring)
        signal.setitimer(signal.ITIMER_REAL, max(4.0, walltime - self.reserve))

    def _ring(self, signum, frame):
        self.expired = True
        log.warning("walltime: %.0f s left, time to save", self.reserve)

    def disarm(self):
        signal.setitimer(signal.ITIMER_REAL, 0)


class ShardedModel(nn.Module):
    def __init__(self, cfg, rank):
        super().__init__()
        self.table = nn.Embedding(cfg.table_rows[rank], cfg.width)
        self.mlp = nn.Sequential(nn.Linear(cfg.width, cfg.width), nn.ReLU(), nn.Linear(cfg.width, 1))

    def forward(self, ids):
        return self.mlp(self.table(ids))

    def shard_bytes(self):
        return self.table.weight.numel() * self.table.weight.element_size()


class Trainer:
    def __init__(self, cfg, rank, world, folder):
        self.cfg, self.rank, self.world, self.folder = cfg, rank, world, folder
        self.model = ShardedModel(cfg, rank)
        self.optim = torch.optim.SGD(self.model.parameters(), lr=cfg.lr)
        self.guard = WalltimeGuard(cfg.walltime, self.model.shard_bytes(), cfg.disk_bytes_per_second)

    def train_step(self):
        ids = torch.randint(self.cfg.table_rows[self.rank], (32,))
        self.optim.zero_grad()
        loss = (self.model(ids) - ids[:, None] % 2).pow(2).mean()
        loss.backward()
        for p in self.model.mlp.parameters():
            dist.all_reduce(p.grad)
            p.grad /= self.world
        self.optim.step()
        time.sleep(self.cfg.pace)
        return loss.item()

    def save(self, step):
        dist.barrier()
        torch.save(self.model.state_dict(), os.path.join(self.folder, f"step{step}-rank{self.rank}.pt"))
        dist.barrier()
        if self.rank == 0:
            log.info("saved step %d", step)

    def fit(self):
        for step in range(self.cfg.steps):
            loss = self.train_step()
            if step % 20 == 0 and self.rank == 0:
                log.info("step %d loss %.3f", step, loss)
            if self.guard.expired:
                self.save(step)
                return step
        self.guard.disarm()
        return self.cfg.steps


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    box = [tempfile.mkdtemp(prefix="walltime-") if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(box, src=0)
    trainer = Trainer(JobConfig(), dist.get_rank(), dist.get_world_size(), box[0])
    trainer.fit()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
