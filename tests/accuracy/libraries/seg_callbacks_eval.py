# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD109", "HD101"]
# culprits = [0]
# lines = [65, 88, 93]
# branch = ["run.is_main", "self.rank == 0"]
# source = "https://github.com/pytorch/pytorch/issues/54059"
# ///
"""Small segmentation net with BatchNorm. Validation lives in a callback that looks at the whole validation set on the main
process, with the wrapped model."""
import logging
import os
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

log = logging.getLogger("seg")


@dataclass
class Options:
    classes: int = 3
    width: int = 8
    images: int = 96
    batch: int = 8
    epochs: int = 4
    val_every: int = 2


class TinyUnet(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, o.width, 3, padding=1), nn.BatchNorm2d(o.width), nn.ReLU())
        self.down = nn.Sequential(nn.Conv2d(o.width, o.width, 3, stride=2, padding=1), nn.BatchNorm2d(o.width), nn.ReLU())
        self.head = nn.Conv2d(2 * o.width, o.classes, 1)

    def forward(self, x):
        a = self.stem(x)
        b = F.interpolate(self.down(a), scale_factor=2)
        return self.head(torch.cat([a, b], 1))


@dataclass
class Run:
    model: nn.Module
    optimizer: torch.optim.Optimizer
    options: Options
    epoch: int = 0
    best: float = 0.0
    history: list = field(default_factory=list)

    @property
    def rank(self):
        return dist.get_rank()

    @property
    def is_main(self):
        return self.rank == 0


def blobs(n, o, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 1, 16, 16, generator=g)
    y = torch.bucketize(F.avg_pool2d(x, 3, 1, 1).squeeze(1), torch.tensor([-0.15, 0.15]))
    return TensorDataset(x, y)


def decay_lr(run, **_):
    for group in run.optimizer.param_groups:
        group["lr"] *= 0.9


def record(run, loss=None, **_):
    run.history.append(loss)
    if run.is_main:
        log.info("epoch %d loss %.3f", run.epoch, loss)


@torch.no_grad()
def validate(run, val_set=None, **_):
    if not run.is_main or (run.epoch + 1) % run.options.val_every:
        return
    run.model.eval()
    hits = total = 0
    for x, y in DataLoader(val_set, batch_size=run.options.batch):
        pred = run.model(x).argmax(1)
        hits, total = hits + (pred == y).sum().item(), total + y.numel()
    run.model.train()
    accuracy = hits / total
    if accuracy > run.best:
        run.best = accuracy
        torch.save(run.model.module.state_dict(), os.path.join(os.environ.get("TMPDIR", "/tmp"), "seg_best.pt"))
    log.info("pixel accuracy %.3f", accuracy)


CALLBACKS = {"epoch_end": [record, decay_lr, validate]}


def fire(event, run, **extra):
    for callback in CALLBACKS[event]:
        callback(run, **extra)


def fit(run, train_set, val_set):
    sampler = DistributedSampler(train_set, shuffle=True)
    loader = DataLoader(train_set, batch_size=run.options.batch, sampler=sampler)
    for run.epoch in range(run.options.epochs):
        sampler.set_epoch(run.epoch)
        for x, y in loader:
            loss = F.cross_entropy(run.model(x), y)
            run.optimizer.zero_grad()
            loss.backward()
            run.optimizer.step()
        fire("epoch_end", run, loss=loss.item(), val_set=val_set)


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    o = Options()
    model = DDP(TinyUnet(o))
    run = Run(model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), o)
    fit(run, blobs(o.images, o, 3), blobs(40, o, 4))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
