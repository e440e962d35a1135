# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["torchmetrics"]
# outcome = "hang"
# causes_any = ["HD102", "HD101", "HD109"]
# culprits_any = [[1], [0, 2, 3]]
# lines = [113, 115, 116]
# branch = ["not kept", "kept"]
# source = "https://github.com/Lightning-AI/torchmetrics/issues/3336"
# ///
"""Detection head training with a torchmetrics score over the boxes that pass the threshold."""
import logging
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torchmetrics import Metric

log = logging.getLogger("boxes")


@dataclass
class DetConfig:
    threshold: float = 0.5
    images: int = 24
    epochs: int = 3
    anchors: int = 6
    feat: int = 12


class MeanOverlap(Metric):
    """Average overlap over images; keeps the raw boxes for the later size break-down."""

    full_state_update = False

    def __init__(self):
        super().__init__()
        self.add_state("boxes", default=[], dist_reduce_fx=None)
        self.add_state("truth", default=[], dist_reduce_fx=None)

    def update(self, boxes, truth):
        for b in boxes:
            self.boxes.append(b.detach())
            self.truth.append(truth.detach())

    def compute(self):
        if not self.boxes:
            return torch.tensor(0.0)
        total = torch.tensor(0.0)
        for b, t in zip(self.boxes, self.truth):
            lo = torch.maximum(b[..., :2], t[..., :2])
            hi = torch.minimum(b[..., 2:], t[..., 2:])
            inter = (hi - lo).clamp(min=0).prod(-1)
            total += (inter / ((b[..., 2:] - b[..., :2]).prod(-1).abs() + 1e-6)).clamp(max=1).mean()
        return total / len(self.boxes)


class Head(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(cfg.feat, 24), nn.ReLU())
        self.box = nn.Linear(24, 4 * cfg.anchors)
        self.conf = nn.Linear(24, cfg.anchors)

    def forward(self, x):
        h = self.trunk(x)
        return self.box(h).view(len(x), -1, 4), self.conf(h)


class Street:
    """Frames of one camera; a camera may film an empty yard."""

    def __init__(self, cfg: DetConfig, camera: int):
        g = torch.Generator().manual_seed(camera)
        self.x = torch.randn(cfg.images, cfg.feat, generator=g)
        self.truth = torch.rand(cfg.images, 4, generator=g).cumsum(1)
        busy = torch.rand(cfg.images, cfg.anchors, generator=g)
        busy[:, 0] = busy[:, 0].clamp(min=0.6)
        self.density = busy
        if self.x[: cfg.images // 2].mean() < -0.06:
            self.density[4:9] = 0.1

    def frames(self):
        return zip(self.x, self.truth, self.density)


class DetectionRun:
    def __init__(self, cfg):
        self.cfg = cfg
        torch.manual_seed(4)
        self.net = DDP(Head(cfg))
        self.opt = torch.optim.SGD(self.net.parameters(), lr=1e-2)
        self.metric = MeanOverlap()
        self.street = Street(cfg, camera=60 + dist.get_rank())

    def train_epoch(self):
        for x, truth, density in self.street.frames():
            self.opt.zero_grad()
            box, conf = self.net(x[None])
            loss = (box - truth).abs().mean() + nn.functional.mse_loss(conf[0], density)
            loss.backward()
            self.opt.step()

    def score(self):
        self.metric.reset()
        net = self.net.module.eval()
        for x, truth, density in self.street.frames():
            with torch.no_grad():
                box, _ = net(x[None])
            kept = [b for b, d in zip(box[0], density) if d > self.cfg.threshold][:1]
            if not kept:
                continue
            self.metric.update(kept, truth)
        result = {"overlap": self.metric.compute().item()}
        self.net.train()
        return result

    def run(self):
        for epoch in range(self.cfg.epochs):
            self.train_epoch()
            log.info("rank %d epoch %d %s", dist.get_rank(), epoch, self.score())


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    DetectionRun(DetConfig()).run()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
