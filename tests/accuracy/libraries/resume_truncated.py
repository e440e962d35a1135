# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD102", "HD103"]
# culprits = [3]
# lines = [54, 55, 86, 90, 95, 101, 106]
# branch = ["self.step < self.cfg.total_steps", "except"]
# source = "https://github.com/ByteDance-Seed/VeOmni/pull/1179"
# ///
"""Every rank resumes from the newest shard checkpoint of its own that can be read. The newest one of rank 3 is truncated, so it falls
back to the one before, starts twelve steps earlier and still trains when the others have finished."""
import logging
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

log = logging.getLogger("finetune")


@dataclass
class Config:
    run_dir: str = ""
    features: int = 12
    hidden: int = 24
    batch: int = 8
    total_steps: int = 40
    save_every: int = 12
    keep: int = 3
    lr: float = 0.01


class ShardStore:
    """One file a rank and a step: rank-<r>/step-<n>.pt"""

    def __init__(self, run_dir, rank):
        self.root = Path(run_dir) / f"rank-{rank}"
        self.root.mkdir(parents=True, exist_ok=True)

    def newest_first(self):
        return sorted(self.root.glob("step-*.pt"), reverse=True)

    def save(self, step, state):
        torch.save({"step": step, **state}, self.root / f"step-{step:06d}.pt")

    def load_latest(self):
        for path in self.newest_first():
            try:
                return torch.load(path)
            except (RuntimeError, EOFError, OSError) as err:
                log.warning("cannot read %s (%s), trying the one before", path.name, type(err).__name__)
        return None

    def prune(self, keep):
        for path in self.newest_first()[keep:]:
            path.unlink()


class Regressor(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(cfg.features, cfg.hidden), nn.ReLU(), nn.Linear(cfg.hidden, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


class Trainer:
    def __init__(self, cfg, rank):
        self.cfg, self.rank, self.step = cfg, rank, 0
        torch.manual_seed(5)
        self.model = Regressor(cfg)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=cfg.lr)
        self.store = ShardStore(cfg.run_dir, rank)
        self.gen = torch.Generator().manual_seed(rank)

    def state(self):
        return {"model": self.model.state_dict(), "opt": self.opt.state_dict()}

    def resume(self):
        state = self.store.load_latest()
        if state is not None:
            self.model.load_state_dict(state["model"])
            self.opt.load_state_dict(state["opt"])
            self.step = state["step"]
            log.info("rank %d resumes", self.rank)

    def average_gradients(self):
        flat = torch.cat([p.grad.flatten() for p in self.model.parameters()])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        for p, g in zip(self.model.parameters(), flat.split([p.numel() for p in self.model.parameters()])):
            p.grad.copy_(g.view_as(p))

    def train(self):
        while self.step < self.cfg.total_steps:
            x = torch.randn(self.cfg.batch, self.cfg.features, generator=self.gen)
            loss = F.mse_loss(self.model(x), x.sum(1))
            self.opt.zero_grad()
            loss.backward()
            self.average_gradients()
            self.opt.step()
            self.step += 1
            if self.step % self.cfg.save_every == 0:
                self.store.save(self.step, self.state())
                self.store.prune(self.cfg.keep)
        return loss.item()

    def summary(self, loss):
        table = [None] * dist.get_world_size() if self.rank == 0 else None
        dist.gather_object({"rank": self.rank, "loss": loss}, table, dst=0)
        if self.rank == 0:
            log.info("final losses %s", [round(t["loss"], 3) for t in table])
        dist.barrier()


def first_life(cfg, rank):
    """The run that the job queue stopped: 24 steps, then the volume was full."""
    trainer = Trainer(Config(**{**vars(cfg), "total_steps": 24}), rank)
    trainer.train()
    newest = trainer.store.newest_first()[0]
    if rank == 3:
        os.truncate(newest, newest.stat().st_size // 2)


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    run_dir = [tempfile.mkdtemp(prefix="finetune-") if rank == 0 else None]
    dist.broadcast_object_list(run_dir)
    cfg = Config(run_dir=run_dir[0])
    first_life(cfg, rank)
    dist.barrier()
    trainer = Trainer(cfg, rank)
    trainer.resume()
    trainer.summary(trainer.train())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
