# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 6"
# outcome = "hang"
# causes_any = ["HD111"]
# culprits = [2, 4]
# lines = [45, 46, 82, 100, 101]
# branch = ["valid.any()", "if valid.any()", "has_depth"]
# source = "https://github.com/lhotse-speech/lhotse/issues/554"
# ///
"""Driving model with two heads under DDP: speed for every frame, depth for the frames of cars that carry a lidar.
The gradient norm is averaged over processes for the log after every backward."""
import logging
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("drive")


@dataclass
class DriveConfig:
    features: int = 12
    width: int = 16
    batch_size: int = 4
    steps: int = 40
    lr: float = 1e-3


class DriveNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(cfg.features, cfg.width), nn.ReLU())
        self.speed = nn.Linear(cfg.width, 1)
        self.depth = nn.Sequential(nn.Linear(cfg.width, cfg.width), nn.ReLU(), nn.Linear(cfg.width, 4))

    def forward(self, frames, lidar):
        hidden = self.trunk(frames)
        out = {"speed": self.speed(hidden).squeeze(-1)}
        valid = ~lidar.isnan().any(dim=-1)
        if valid.any():
            out["depth"] = self.depth(hidden[valid])
            out["depth_target"] = lidar[valid]
        return out


class Drives:
    """Recorded drives; on the 9th batch two processes got only cars of the cheap fleet (no lidar)."""
    cheap_fleet = {(2, 9), (4, 9)}

    def __init__(self, cfg, rank):
        self.cfg, self.rank = cfg, rank
        self.gen = torch.Generator().manual_seed(rank)

    def batch(self, step):
        cfg = self.cfg
        frames = torch.randn(cfg.batch_size, cfg.features, generator=self.gen)
        lidar = frames[:, :4].abs()
        lidar[0] = float("nan")
        if (self.rank, step) in self.cheap_fleet:
            lidar[:] = float("nan")
        return frames, frames.sum(-1), lidar


class MultiTaskLoss:
    weights = {"speed": 1.0, "depth": 0.5}

    def __call__(self, out, speed):
        loss = self.weights["speed"] * nn.functional.mse_loss(out["speed"], speed)
        if "depth" in out:
            loss = loss + self.weights["depth"] * nn.functional.l1_loss(out["depth"], out["depth_target"])
        return loss


def mean_grad_norm(model):
    norm = torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm().reshape(1)
    norms = [torch.zeros_like(norm) for _ in range(dist.get_world_size())]
    dist.all_gather(norms, norm)
    return torch.cat(norms).mean().item()


class Trainer:
    def __init__(self, cfg):
        self.cfg, self.rank = cfg, dist.get_rank()
        torch.manual_seed(0)
        self.model = DDP(DriveNet(cfg))
        self.loss = MultiTaskLoss()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=cfg.lr)
        self.drives = Drives(cfg, self.rank)

    def fit(self):
        for step in range(self.cfg.steps):
            frames, speed, lidar = self.drives.batch(step)
            self.optimizer.zero_grad(set_to_none=True)
            loss = self.loss(self.model(frames, lidar), speed)
            loss.backward()
            norm = mean_grad_norm(self.model)
            self.optimizer.step()
            if self.rank == 0 and step % 4 == 0:
                log.info("step %d loss %.3f gradient norm %.3f", step, loss.item(), norm)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    Trainer(DriveConfig()).fit()
    dist.destroy_process_group()
