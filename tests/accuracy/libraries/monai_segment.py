# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["monai"]
# outcome = "hang"
# causes_any = ["HD101", "HD109", "HD106", "HD303"]
# culprits = [2]
# lines = [68]
# branch = ["len(self.loader) == 0"]
# source = "https://github.com/Project-MONAI/MONAI/issues/5593"
# ///
"""Lesion segmentation on synthetic volumes with MONAI building blocks."""
import logging
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
from monai.data import CacheDataset, DataLoader
from monai.losses import DiceLoss
from monai.metrics import CumulativeAverage, DiceMetric
from monai.networks.nets import UNet
from monai.transforms import Compose, EnsureTyped, RandFlipd, ScaleIntensityd
from monai.utils import set_determinism
from torch.nn.parallel import DistributedDataParallel

log = logging.getLogger("lesions")


@dataclass
class Settings:
    train_cases: int = 12
    val_cases: int = 2
    epochs: int = 3
    size: int = 16


def synthesize(count, size, seed):
    rng = np.random.default_rng(seed)
    cases = []
    for k in range(count):
        image = rng.normal(size=(1, size, size)).astype(np.float32)
        label = np.zeros_like(image)
        a, b = rng.integers(2, size - 6, 2)
        label[0, a:a + 5, b:b + 5] = 1
        cases.append({"image": image + 2 * label, "label": label, "id": k})
    return cases


def make_loader(cases, train):
    cases = cases[dist.get_rank()::dist.get_world_size()]
    keys = ["image", "label"]
    steps = [ScaleIntensityd("image")]
    if train:
        steps.append(RandFlipd(keys, prob=0.5, spatial_axis=0))
    steps.append(EnsureTyped(keys))
    data = CacheDataset(cases, Compose(steps), progress=False, num_workers=1)
    return DataLoader(data, batch_size=2 if train else 1, shuffle=train)


class Validator:
    def __init__(self, loader, model):
        self.loader = loader
        self.model = model
        self.dice = DiceMetric(include_background=True, reduction="mean")

    @torch.no_grad()
    def run(self):
        if len(self.loader) == 0:
            log.info("nothing to validate here")
            return None
        self.model.eval()
        for batch in self.loader:
            predicted = (self.model(batch["image"]).sigmoid() > 0.5).float()
            self.dice(predicted, batch["label"])
        score = self.dice.aggregate().item()
        self.dice.reset()
        return score


class Fitter:
    def __init__(self, model, loader, validator, settings):
        self.model = DistributedDataParallel(model)
        self.loader = loader
        self.validator = validator
        self.settings = settings
        self.optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
        self.criterion = DiceLoss(sigmoid=True)
        self.best = -1.0

    def epoch(self):
        self.model.train()
        mean = CumulativeAverage()
        for batch in self.loader:
            self.optimizer.zero_grad()
            loss = self.criterion(self.model(batch["image"]), batch["label"])
            loss.backward()
            self.optimizer.step()
            mean.append(loss.item())
        return float(mean.aggregate())

    def fit(self):
        for n in range(self.settings.epochs):
            loss = self.epoch()
            score = self.validator.run()
            if score is not None and score > self.best:
                self.best = score
            log.info("epoch %d loss %.4f dice %s", n, loss, score)


def main():
    logging.basicConfig(level=logging.INFO)
    settings = Settings()
    dist.init_process_group("gloo")
    set_determinism(0)
    model = UNet(spatial_dims=2, in_channels=1, out_channels=1, channels=(4, 8), strides=(2,))
    train = synthesize(settings.train_cases, settings.size, 0)
    held = synthesize(settings.val_cases, settings.size, 1)
    fitter = Fitter(model, make_loader(train, True), Validator(make_loader(held, False), model), settings)
    fitter.fit()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
