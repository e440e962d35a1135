# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["torchdata"]
# outcome = "hang"
# causes_any = ["HD102"]
# culprits = [3]
# lines = [65, 105]
# branch = ["self.path.exists()", "in pipeline.loader"]
# source = "https://github.com/pytorch/torchtitan/issues/409"
# ///
"""Resumed run with torchdata's StatefulDataLoader. Every rank stores its loader state in its own file; the disk of one was full
when the run was cut, so that file is not there."""
import logging
import os
import pathlib
import tempfile
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import Dataset
from torch.utils.data.distributed import DistributedSampler
from torchdata.stateful_dataloader import StatefulDataLoader

log = logging.getLogger("resume")


@dataclass
class ResumeConfig:
    rows: int = 640
    features: int = 8
    batch: int = 8
    epochs: int = 2
    save_every: int = 5
    home: pathlib.Path = pathlib.Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "resume"


class Measurements(Dataset):
    def __init__(self, cfg):
        g = torch.Generator().manual_seed(0)
        self.x = torch.randn(cfg.rows, cfg.features, generator=g)
        self.y = self.x.pow(2).sum(1)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class Pipeline:
    def __init__(self, cfg, rank, world):
        self.path = cfg.home / f"loader_{rank}.pt"
        data = Measurements(cfg)
        self.sampler = DistributedSampler(data, world, rank, shuffle=True, seed=7)
        self.loader = StatefulDataLoader(data, batch_size=cfg.batch, sampler=self.sampler)

    def save(self):
        torch.save(self.loader.state_dict(), self.path)

    def restore(self):
        state = load(self.path) if self.path.exists() else None
        if state is not None:
            self.loader.load_state_dict(state)
        return state is not None


def load(path):
    return torch.load(path, weights_only=False)


class Checkpoint:
    """Model and optimizer, replicated: one file."""

    def __init__(self, cfg, model, optimizer):
        self.path, self.parts = cfg.home / "model.pt", {"model": model, "optimizer": optimizer}

    def save(self, epoch):
        if dist.get_rank() == 0:
            torch.save({"epoch": epoch, **{k: v.state_dict() for k, v in self.parts.items()}}, self.path)

    def restore(self):
        if not self.path.exists():
            return 0
        data = load(self.path)
        for name, part in self.parts.items():
            part.load_state_dict(data[name])
        return data["epoch"]


def run(cfg, rank, world, stop_at=None):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(cfg.features, 16), nn.ReLU(), nn.Linear(16, 1))
    model = DDP(net)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    pipeline, checkpoint = Pipeline(cfg, rank, world), Checkpoint(cfg, net, optimizer)
    first, resumed = checkpoint.restore(), pipeline.restore()
    log.info("[%d] epoch %d, loader state %s", rank, first, "found" if resumed else "fresh")
    step = 0
    for epoch in range(first, cfg.epochs):
        pipeline.sampler.set_epoch(epoch)
        for x, y in pipeline.loader:
            loss = F.mse_loss(model(x).squeeze(1), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % cfg.save_every == 0:
                checkpoint.save(epoch)
                if not (stop_at and rank == 3):
                    pipeline.save()
            if step == stop_at:
                return
        dist.barrier()
        checkpoint.save(epoch + 1)


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    cfg, rank, world = ResumeConfig(), dist.get_rank(), dist.get_world_size()
    cfg.home.mkdir(parents=True, exist_ok=True)
    run(cfg, rank, world, stop_at=10)
    dist.barrier()
    run(cfg, rank, world)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
