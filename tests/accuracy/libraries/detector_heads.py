# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD111", "HD101", "HD106"]
# culprits = [0]
# lines = [69, 70, 75, 77, 89, 104, 108]
# branch = ["matched.any()", "not matched.any()"]
# source = "https://github.com/pytorch/pytorch/issues/23425"
# ///
import logging
import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

logging.basicConfig(level=logging.INFO, format="%(asctime)s [r" + os.environ["RANK"] + "] %(message)s")
log = logging.getLogger("det")


@dataclass
class DetConfig:
    anchors: int = 12
    dim: int = 16
    min_overlap: float = 0.25
    iters: int = 60
    meter_every: int = 10


class Scene:
    """One picture a step: anchor features, and the boxes that were annotated in it."""

    def __init__(self, cfg, site):
        self.cfg = cfg
        self.gen = torch.Generator().manual_seed(900 + site)
        self.site = site

    def draw(self, step):
        feats = torch.randn(self.cfg.anchors, self.cfg.dim, generator=self.gen)
        overlap = torch.rand(self.cfg.anchors, generator=self.gen)
        overlap[0] = 0.9
        if self.site == 0 and step == 34:
            overlap = overlap * 0.2
        boxes = torch.rand(self.cfg.anchors, 4, generator=self.gen)
        return feats, overlap, boxes


class TwoHeadDetector(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(cfg.dim, 32), nn.ReLU())
        self.objectness = nn.Linear(32, 1)
        self.box = nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 4))

    def forward(self, feats):
        h = self.trunk(feats)
        return self.objectness(h).squeeze(-1), self.box(h)


class DetectionLoss:
    def __init__(self, cfg):
        self.cfg = cfg

    def _box_term(self, pred, target, matched):
        if not matched.any():
            return pred.new_zeros(())
        return F.smooth_l1_loss(pred[matched], target[matched])

    def __call__(self, outputs, overlap, target):
        score, pred = outputs
        matched = overlap > self.cfg.min_overlap
        cls = F.binary_cross_entropy_with_logits(score, matched.float())
        return {"cls": cls, "box": self._box_term(pred, target, matched)}


class Meter:
    def __init__(self):
        self.rows = []

    def add(self, terms):
        self.rows.append({k: v.item() for k, v in terms.items()})

    def collect(self):
        everyone = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, self.rows)
        self.rows = []
        flat = [row for rows in everyone for row in rows]
        return {k: sum(r[k] for r in flat) / len(flat) for k in flat[0]}


def train(cfg):
    torch.manual_seed(8)
    model = DDP(TwoHeadDetector(cfg))
    opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    scene, criterion, meter = Scene(cfg, dist.get_rank()), DetectionLoss(cfg), Meter()
    for step in range(1, cfg.iters + 1):
        feats, overlap, boxes = scene.draw(step)
        terms = criterion(model(feats), overlap, boxes)
        opt.zero_grad()
        sum(terms.values()).backward()
        opt.step()
        meter.add(terms)
        if step % cfg.meter_every == 4:
            log.info("step %d %s", step, meter.collect())


def main():
    dist.init_process_group("gloo")
    train(DetConfig())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
