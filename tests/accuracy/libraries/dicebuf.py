# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["monai"]
# outcome = "hang"
# causes_any = ["HD109", "HD101", "HD106", "HD303"]
# culprits = [3]
# lines = [83, 85, 93]
# branch = ["not batch[\"seg\"].any()", "len(self.dice) == 0"]
# source = "https://github.com/Project-MONAI/MONAI/pull/1532"
# ///
"""Lesion segmentation: sliding validation over the volumes of a rank, one Dice score over the whole cohort."""
import logging
import os
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from monai.data import CacheDataset, DataLoader, partition_dataset
from monai.losses import DiceLoss
from monai.metrics import DiceMetric
from monai.networks.nets import UNet
from monai.utils import set_determinism
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("lesion")


@dataclass
class Plan:
    epochs: int = 4
    val_every: int = 2
    size: int = 16
    train_cases: int = 8
    val_cases: int = 8


def make_case(i, size, sick):
    g = torch.Generator().manual_seed(i)
    img = torch.rand(1, size, size, generator=g)
    seg = torch.zeros(1, size, size)
    if sick:
        at = int(torch.randint(2, size - 6, (1,), generator=g))
        seg[:, at:at + 4, at:at + 4] = 1
        img = img + seg
    return {"image": img, "seg": seg, "id": i}


class Cohort:
    def __init__(self, plan):
        self.train = [make_case(i, plan.size, True) for i in range(plan.train_cases)]
        controls = {103, 107}
        self.val = [make_case(i, plan.size, i not in controls) for i in range(100, 100 + plan.val_cases)]

    def loaders(self, rank, world):
        def build(items):
            part = partition_dataset(items, num_partitions=world, shuffle=False, even_divisible=True)[rank]
            return DataLoader(CacheDataset(part, transform=None, progress=False), batch_size=1, num_workers=0)

        return build(self.train), build(self.val)


class Segmenter:
    def __init__(self, plan, rank, world):
        self.plan = plan
        self.net = DDP(UNet(spatial_dims=2, in_channels=1, out_channels=1, channels=(4, 8), strides=(2,)))
        self.opt = torch.optim.Adam(self.net.parameters(), 1e-2)
        self.loss = DiceLoss(sigmoid=True)
        self.dice = DiceMetric(include_background=True, reduction="mean")
        self.train_loader, self.val_loader = Cohort(plan).loaders(rank, world)

    def train_epoch(self):
        self.net.train()
        for batch in self.train_loader:
            self.opt.zero_grad()
            self.loss(self.net(batch["image"]), batch["seg"]).backward()
            self.opt.step()

    @torch.no_grad()
    def validate(self):
        self.net.eval()
        for batch in self.val_loader:
            if not batch["seg"].any():
                log.debug("case %s has no lesion", batch["id"])
                continue
            pred = (self.net.module(batch["image"]).sigmoid() > 0.5).float()
            self.dice(y_pred=pred, y=batch["seg"])
        score = self.cohort_score()
        self.dice.reset()
        return score

    def cohort_score(self):
        if len(self.dice) == 0:
            return float("nan")
        return self.dice.aggregate().item()

    def run(self):
        for epoch in range(self.plan.epochs):
            self.train_epoch()
            if (epoch + 1) % self.plan.val_every == 0:
                log.info("epoch %d dice %.3f", epoch, self.validate())


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=60))
    set_determinism(1)
    Segmenter(Plan(), dist.get_rank(), int(os.environ["WORLD_SIZE"])).run()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
