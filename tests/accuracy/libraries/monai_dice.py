# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = ["monai"]
# outcome = "hang"
# causes_any = ["HD102", "HD109"]
# culprits_any = [[0], [1]]
# lines = [48, 52, 53, 77]
# branch = ["for image, label in", "self.loader", "for batch", "enumerate"]
# source = "https://github.com/Project-MONAI/MONAI/issues/5357"
# ///
"""Validation prints the running Dice of every case; DiceMetric.aggregate() gathers over the ranks.
Seven cases over two ranks: rank 0 has four and calls it once more than rank 1, which has left the loop."""
import torch
import torch.distributed as dist
from monai.data import CacheDataset, DataLoader, partition_dataset
from monai.metrics import DiceMetric
from monai.transforms import Compose, EnsureTyped
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def cases(count):
    out = []
    for i in range(count):
        g = torch.Generator().manual_seed(i)
        out.append({"image": torch.rand(1, 8, 8, generator=g), "label": (torch.rand(1, 8, 8, generator=g) > 0.5).float()})
    return out


class Segmenter(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 3, padding=1)

    def forward(self, x):
        return torch.sigmoid(self.conv(x))


class Validator:
    def __init__(self, model, data):
        self.model, self.metric = model, DiceMetric(include_background=True, reduction="mean")
        self.loader = DataLoader(data, batch_size=1, num_workers=0)

    def one(self, batch):
        with torch.no_grad():
            mask = (self.model(batch["image"]) > 0.5).float()
        self.metric(y_pred=mask, y=batch["label"])
        return self.metric.aggregate().item()

    def run(self):
        dice = 0.0
        for i, batch in enumerate(self.loader):
            dice = self.one(batch)
            print("case", i, "dice so far", round(dice, 3), flush=True)
        self.metric.reset()
        return dice


def train(model, data):
    optimizer = torch.optim.Adam(model.parameters())
    for batch in DataLoader(data, batch_size=2, num_workers=0):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(batch["image"]), batch["label"]).backward()
        optimizer.step()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    prepare = Compose([EnsureTyped(keys=["image", "label"])])
    train_part = partition_dataset(cases(8), num_partitions=world, even_divisible=True)[rank]
    val_part = partition_dataset(cases(7), num_partitions=world, even_divisible=False)[rank]
    model = DDP(Segmenter())
    train(model, CacheDataset(train_part, prepare, progress=False))
    dice = Validator(model.module, CacheDataset(val_part, prepare, progress=False)).run()
    best = torch.tensor(dice)
    dist.broadcast(best, 0)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
