# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 5"
# requires = ["monai"]
# outcome = "hang"
# causes_any = ["HD109", "HD101", "HD303"]
# culprits = [4]
# lines = [61, 67, 69, 75]
# branch = ["not self.volumes", "name not in NO_LESION_MASK"]
# source = "https://github.com/Project-MONAI/MONAI/issues/2468"
# ///
"""3D segmentation with MONAI: the validation volumes are dealt out with partition_dataset and the Dice metric is aggregated over
the ranks; volumes whose lesion mask is missing are left out first."""
import logging
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
from monai.data import partition_dataset
from monai.losses import DiceLoss
from monai.metrics import DiceMetric
from monai.networks.utils import one_hot
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("liver")


@dataclass
class Args:
    epochs: int = 6
    val_interval: int = 2
    patches: int = 8
    size: int = 8
    channels: int = 6
    lr: float = 0.01


class SegNet(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.net = nn.Sequential(nn.Conv3d(1, channels, 3, padding=1), nn.InstanceNorm3d(channels), nn.PReLU(),
                                 nn.Conv3d(channels, 2, 1))

    def forward(self, x):
        return self.net(x)


def load_volume(name, size):
    g = torch.Generator().manual_seed(sum(map(ord, name)))
    image = torch.randn(1, 1, size, size, size, generator=g)
    return image, (image > 0.3).float()


FOLDS = {"train": [f"case_{i:03d}" for i in range(20)], "val": [f"case_{i:03d}" for i in range(40, 45)]}
NO_LESION_MASK = {"case_007", "case_044"}


class Validator:
    def __init__(self, args, volumes):
        self.args = args
        self.volumes = [name for name in volumes if name not in NO_LESION_MASK]
        self.dice = DiceMetric(include_background=False, reduction="mean")
        self.best = -1.0

    @torch.no_grad()
    def __call__(self, model, epoch):
        if not self.volumes:
            log.debug("no validation volume here")
            return None
        model.eval()
        for name in self.volumes:
            image, label = load_volume(name, self.args.size)
            prediction = model.module(image).argmax(1, keepdim=True)
            self.dice(y_pred=one_hot(prediction, 2), y=one_hot(label, 2))
        score = self.dice.aggregate().item()
        self.dice.reset()
        model.train()
        if score > self.best:
            self.best = score
        return score


class Trainer:
    def __init__(self, args):
        self.args, self.rank, self.world = args, dist.get_rank(), dist.get_world_size()
        torch.manual_seed(0)
        self.model = DDP(SegNet(args.channels))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=args.lr)
        self.loss = DiceLoss(to_onehot_y=True, softmax=True)
        part = {k: partition_dataset(data=v, num_partitions=self.world, shuffle=False, even_divisible=(k == "train"))
                for k, v in FOLDS.items()}
        self.cases = part["train"][self.rank]
        self.validator = Validator(args, part["val"][self.rank])

    def epoch(self):
        total = 0.0
        for name in self.cases:
            image, label = load_volume(name, self.args.size)
            loss = self.loss(self.model(image), label)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.item()
        return total / len(self.cases)

    def fit(self):
        for epoch in range(1, self.args.epochs + 1):
            loss = self.epoch()
            if epoch % self.args.val_interval == 0:
                score = self.validator(self.model, epoch)
                if self.rank == 0:
                    log.info("epoch %d loss %.3f dice %.3f best %.3f", epoch, loss, score, self.validator.best)


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    try:
        Trainer(Args()).fit()
        dist.barrier()
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
