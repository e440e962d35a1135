# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 5"
# outcome = "hang"
# causes_any = ["HD102", "HD109"]
# culprits_any = [[0, 3]]
# lines = [49, 58, 81, 97, 103]
# branch = ["for images, captions in loader", "sample[\"aspect\"] <= self.cfg.max_aspect", "filter(self.keep,"]
# source = "https://github.com/pytorch/pytorch/issues/141069"
# ///
"""Caption training from shards by an IterableDataset with DataLoader workers: wide images are filtered while streaming.
Two ranks' shards have more wide images, they see fewer batches in the epoch and go on to the epoch's report."""
import logging
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

log = logging.getLogger("caption")


@dataclass
class DataConfig:
    shards: int = 20
    per_shard: int = 18
    batch: int = 6
    workers: int = 1
    max_aspect: float = 2.2
    hidden: int = 12
    epochs: int = 3


def shard_samples(shard: int, epoch: int, cfg: DataConfig):
    g = torch.Generator().manual_seed(shard * 1000 + epoch)
    panorama = epoch == 1 and shard in (10, 13)
    for n in range(cfg.per_shard):
        aspect = 3.1 if panorama and n % 2 else 1.0 + (n % 6) * 0.2
        yield {"image": torch.randn(cfg.hidden, generator=g), "caption": torch.randn(cfg.hidden, generator=g), "aspect": aspect}


class CaptionStream(IterableDataset):
    def __init__(self, cfg: DataConfig, rank: int, world: int):
        self.cfg, self.rank, self.world, self.epoch = cfg, rank, world, 0

    def keep(self, sample):
        return sample["aspect"] <= self.cfg.max_aspect

    def my_shards(self):
        info = get_worker_info()
        shards = range(self.rank, self.cfg.shards, self.world)
        return shards if info is None else list(shards)[info.id::info.num_workers]

    def __iter__(self):
        for shard in self.my_shards():
            for sample in filter(self.keep, shard_samples(shard, self.epoch, self.cfg)):
                yield sample["image"], sample["caption"]


class Captioner(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(hidden, 2 * hidden), nn.GELU())
        self.decode = nn.Linear(2 * hidden, hidden)

    def forward(self, images):
        return self.decode(self.encode(images))


class Meter:
    def __init__(self):
        self.total, self.count = 0.0, 0

    def update(self, value, n):
        self.total, self.count = self.total + value * n, self.count + n

    def report(self):
        both = [None] * dist.get_world_size()
        dist.all_gather_object(both, (self.total, self.count))
        return sum(t for t, _ in both) / sum(c for _, c in both)


class Trainer:
    def __init__(self, cfg: DataConfig):
        self.cfg, self.rank = cfg, dist.get_rank()
        torch.manual_seed(0)
        self.model = DDP(Captioner(cfg.hidden))
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.stream = CaptionStream(cfg, self.rank, dist.get_world_size())

    def train_epoch(self, epoch):
        self.stream.epoch = epoch
        loader = DataLoader(self.stream, batch_size=self.cfg.batch, num_workers=self.cfg.workers, drop_last=True)
        meter = Meter()
        for images, captions in loader:
            loss = nn.functional.mse_loss(self.model(images), captions)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            meter.update(loss.item(), len(images))
        return meter.report()


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    cfg = DataConfig()
    trainer = Trainer(cfg)
    for epoch in range(cfg.epochs):
        mean = trainer.train_epoch(epoch)
        if trainer.rank == 0:
            log.info("epoch %d: mean loss %.4f", epoch, mean)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
