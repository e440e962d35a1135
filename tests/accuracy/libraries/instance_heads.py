# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["torchmetrics"]
# outcome = "hang"
# causes_any = ["HD111", "HD101", "HD106"]
# culprits = [0]
# lines = [70, 71, 65]
# branch = ["labelled.any()"]
# source = "https://github.com/roboflow/rf-detr/pull/1094"
# ///
"""Detector with a box head and a mask head, trained on partly segmented images."""
import logging
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from torchmetrics import MeanMetric

log = logging.getLogger("detector")


@dataclass
class DetectorConfig:
    images: int = 180
    batch: int = 6
    epochs: int = 2
    width: int = 24
    mask_cells: int = 16
    mask_weight: float = 0.5


class Annotated(Dataset):
    """Images in the order of the annotation batches; some batches came without outlines."""

    def __init__(self, cfg):
        g = torch.Generator().manual_seed(14)
        self.pixels = torch.randn(cfg.images, cfg.width, generator=g)
        self.boxes = torch.rand(cfg.images, 4, generator=g)
        self.masks = (torch.rand(cfg.images, cfg.mask_cells, generator=g) > 0.5).float()
        order = torch.arange(cfg.images)
        self.outlined = ~((order >= 70) & (order < 110) & (order % 3 == 0))

    def __len__(self):
        return len(self.pixels)

    def __getitem__(self, n):
        return self.pixels[n], self.boxes[n], self.masks[n], self.outlined[n]


class Detector(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.trunk = nn.Sequential(nn.Linear(cfg.width, 32), nn.ReLU())
        self.box_head = nn.Linear(32, 4)
        self.mask_head = nn.Linear(32, cfg.mask_cells)

    def box_loss(self, features, boxes):
        return nn.functional.l1_loss(self.box_head(features).sigmoid(), boxes)

    def mask_loss(self, features, masks):
        return nn.functional.binary_cross_entropy_with_logits(self.mask_head(features), masks)

    def forward(self, pixels, boxes, masks, labelled):
        features = self.trunk(pixels)
        losses = {"box": self.box_loss(features, boxes)}
        if labelled.any():
            losses["mask"] = self.cfg.mask_weight * self.mask_loss(features[labelled], masks[labelled])
        return losses


class Progress:
    """Mean losses over all workers, on a group of their own."""

    def __init__(self, group):
        self.mean = MeanMetric(process_group=group)

    def update(self, losses):
        self.mean.update(sum(losses.values()).detach())

    def report(self, step):
        value = float(self.mean.compute())
        self.mean.reset()
        if dist.get_rank() == 0:
            log.info("step %d loss %.4f", step, value)


def fit(cfg, model, loader, progress):
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    step = 0
    for epoch in range(cfg.epochs):
        loader.sampler.set_epoch(epoch)
        for pixels, boxes, masks, labelled in loader:
            step += 1
            losses = model(pixels, boxes, masks, labelled)
            optimizer.zero_grad()
            sum(losses.values()).backward()
            optimizer.step()
            progress.update(losses)
            progress.report(step)


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    cfg = DetectorConfig()
    torch.manual_seed(0)
    model = DistributedDataParallel(Detector(cfg))
    data = Annotated(cfg)
    loader = DataLoader(data, batch_size=cfg.batch, sampler=DistributedSampler(data, shuffle=False))
    fit(cfg, model, loader, Progress(dist.new_group(backend="gloo")))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
