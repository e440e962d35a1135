# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["monai"]
# outcome = "hang"
# causes_any = ["HD102", "HD109", "HD101"]
# culprits = [3]
# lines = [87, 100, 101]
# branch = ["self.dice.items()"]
# source = "https://github.com/Project-MONAI/MONAI/issues/4659"
# ///
"""Volume segmentation with MONAI under DDP; validation slides a window over whole volumes of the process's own patients
and the Dice scores are aggregated by clinic."""
import logging
from collections import defaultdict
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from monai.data import partition_dataset
from monai.inferers import SlidingWindowInferer
from monai.losses import DiceLoss
from monai.metrics import DiceMetric
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("seg")


@dataclass
class SegConfig:
    channels: int = 4
    roi: tuple = (8, 8)
    overlap: float = 0.25
    sw_batch_size: int = 2
    steps: int = 12
    val_every: int = 4
    train_patients: int = 16
    val_patients: int = 8


class SmallNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, cfg.channels, 3, padding=1), nn.BatchNorm2d(cfg.channels), nn.ReLU(),
                                  nn.Conv2d(cfg.channels, 1, 1))

    def forward(self, x):
        return self.body(x)


class Volume:
    """One scan; most are 16x16, those of one site are larger."""
    sizes = {2: (20, 24)}
    sites = {100: "ulm", 101: "bern", 102: "bern", 103: "ulm", 104: "bern", 105: "ulm", 106: "ulm", 107: "ulm"}

    def __init__(self, patient):
        self.patient = patient

    @property
    def site(self):
        return self.sites.get(self.patient, "train")

    def load(self):
        h, w = self.sizes.get(self.patient, (16, 16))
        image = torch.randn(1, 1, h, w, generator=torch.Generator().manual_seed(self.patient))
        return image, (image > 0.3).float()


class Segmentation:
    def __init__(self, cfg):
        self.cfg, self.rank = cfg, dist.get_rank()
        torch.manual_seed(4)
        self.model = DDP(SmallNet(cfg))
        self.loss = DiceLoss(sigmoid=True)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.inferer = SlidingWindowInferer(roi_size=cfg.roi, sw_batch_size=cfg.sw_batch_size, overlap=cfg.overlap)
        self.dice = defaultdict(lambda: DiceMetric(include_background=True, reduction="mean"))
        world = dist.get_world_size()
        self.train_cases = partition_dataset([Volume(i) for i in range(cfg.train_patients)], num_partitions=world, shuffle=True)[self.rank]
        held_out = [Volume(100 + i) for i in range(cfg.val_patients)]
        self.cases = partition_dataset(held_out, num_partitions=world, even_divisible=False)[self.rank]

    def train_step(self, step):
        image, label = self.train_cases[step % len(self.train_cases)].load()
        loss = self.loss(self.model(image), label)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        self.dice.clear()
        for case in self.cases:
            image, label = case.load()
            logits = self.inferer(image, self.model.module)
            self.dice[case.site]((logits.sigmoid() > 0.5).float(), label)
        scores = {site: metric.aggregate().item() for site, metric in sorted(self.dice.items())}
        self.model.train()
        return scores

    def fit(self):
        for step in range(1, self.cfg.steps + 1):
            loss = self.train_step(step)
            if step % self.cfg.val_every == 0:
                dice = self.validate()
                if self.rank == 0:
                    log.info("step %d loss %.3f dice %s", step, loss, dice)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    Segmentation(SegConfig()).fit()
    dist.destroy_process_group()
