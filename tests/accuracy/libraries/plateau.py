# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD102", "HD101", "HD106"]
# culprits = [1]
# lines = [99]
# branch = ["self.lr > self.cfg.min_lr"]
# source = "https://github.com/rmchurch/disruptcnn/issues/3"
# ///
"""Disruption classifier: causal conv net, learning rate halved on plateau, training until the rate is spent."""
import logging
import os
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.lr_scheduler import ReduceLROnPlateau

log = logging.getLogger("disrupt")


@dataclass
class Config:
    lr: float = 0.05
    min_lr: float = 0.002
    factor: float = 0.25
    patience: int = 2
    batches: int = 6
    window: int = 32


class ShotWindows:
    """Windows cut out of the shots that were assigned to this rank."""

    def __init__(self, rank: int, cfg: Config):
        g = torch.Generator().manual_seed(40 + rank)
        self.x = torch.randn(cfg.batches + 2, 8, 4, cfg.window, generator=g)
        self.y = (torch.rand(cfg.batches + 2, 8, generator=g) > 0.5).float()
        self.x += 0.4 * (2 * self.y - 1)[..., None, None]
        # shots recorded before the diagnostics upgrade carry flat-top labels only
        legacy = {int(s) for s in os.environ.get("LEGACY_PARTS", "1,4").split(",")}
        if rank in legacy:
            self.y[-2:] = 0.5
        self.split = cfg.batches

    def train(self):
        return zip(self.x[: self.split], self.y[: self.split])

    def valid(self):
        return zip(self.x[self.split:], self.y[self.split:])


class TCN(nn.Module):
    def __init__(self, ch=4):
        super().__init__()
        self.body = nn.Sequential(nn.Conv1d(ch, 16, 5), nn.ReLU(), nn.Conv1d(16, 16, 5, dilation=2), nn.ReLU())
        self.head = nn.Linear(16, 1)

    def forward(self, x):
        return self.head(self.body(x).mean(-1)).squeeze(-1)


class Fitter:
    def __init__(self, cfg, rank):
        self.cfg, self.rank = cfg, rank
        torch.manual_seed(0)
        self.net = DDP(TCN())
        self.opt = torch.optim.SGD(self.net.parameters(), lr=cfg.lr)
        self.sched = ReduceLROnPlateau(self.opt, factor=cfg.factor, patience=cfg.patience, threshold=1e-3)
        self.data = ShotWindows(rank, cfg)
        self.crit = nn.BCEWithLogitsLoss()

    @property
    def lr(self):
        return self.opt.param_groups[0]["lr"]

    def train_epoch(self):
        for x, y in self.data.train():
            self.opt.zero_grad()
            self.crit(self.net(x), y).backward()
            self.opt.step()

    @torch.no_grad()
    def validate(self):
        losses = [self.crit(self.net.module(x), y) for x, y in self.data.valid()]
        total = torch.stack(losses).mean()
        shown = total.clone()
        dist.reduce(shown, dst=0)
        if self.rank == 0:
            log.info("val %.4f lr %.5f", shown.item() / dist.get_world_size(), self.lr)
        return total

    def fit(self):
        epoch = 0
        while self.lr > self.cfg.min_lr:
            self.train_epoch()
            self.sched.step(self.validate())
            epoch += 1
        return epoch


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo", timeout=timedelta(hours=1))
    torch.set_num_threads(1)
    fitter = Fitter(Config(), dist.get_rank())
    epochs = fitter.fit()
    dist.barrier()
    log.info("finished after %d epochs", epochs)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
