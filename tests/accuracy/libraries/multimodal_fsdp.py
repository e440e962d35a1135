# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD101", "HD106", "HD109", "HD102"]
# culprits = [1]
# lines = [57, 80, 81, 85, 98, 107, 108]
# branch = ["batch.pixels is not None", "pics", "batch.pixels"]
# source = "https://github.com/pytorch/pytorch/issues/148334"
# ///
import logging
import os
from dataclasses import dataclass
from typing import Optional

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Dataset, DistributedSampler

logging.basicConfig(level=logging.INFO, format="%(asctime)s [r" + os.environ["RANK"] + "] %(message)s")
log = logging.getLogger("mm")


@dataclass
class Batch:
    text: torch.Tensor
    labels: torch.Tensor
    pixels: Optional[torch.Tensor]
    owner: Optional[torch.Tensor]


class CaptionPairs(Dataset):
    """A mixed corpus: most samples carry a picture, text-only pages come in runs."""

    def __init__(self, n=160, text_only=((61, 1), (65, 4), (69, 1), (102, 2))):
        self.n = n
        self.plain = {i for start, count in text_only for i in range(start, start + count)}

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        gen = torch.Generator().manual_seed(i)
        text = torch.randn(12, generator=gen)
        image = None if i in self.plain else torch.randn(20, generator=gen)
        return text, image, i % 5


def collate(rows):
    pics = [(k, image) for k, (_, image, _) in enumerate(rows) if image is not None]
    return Batch(
        text=torch.stack([r[0] for r in rows]),
        labels=torch.tensor([r[2] for r in rows]),
        pixels=torch.stack([p for _, p in pics]) if pics else None,
        owner=torch.tensor([k for k, _ in pics]) if pics else None,
    )


class VisionTower(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.proj = nn.Sequential(nn.Linear(20, 32), nn.GELU(), nn.Linear(32, dim))

    def forward(self, pixels):
        return self.proj(pixels)


class MixedModel(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.vision = VisionTower(dim)
        self.text = nn.Sequential(nn.Linear(12, dim), nn.GELU())
        self.head = nn.Linear(dim, 5)

    def fuse(self, batch):
        x = self.text(batch.text)
        if batch.pixels is not None:
            x = x.index_add(0, batch.owner, self.vision(batch.pixels))
        return x

    def forward(self, batch):
        return self.head(self.fuse(batch))


def shard(model, mesh):
    fully_shard(model.vision, mesh=mesh)
    fully_shard(model.text, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def global_share(labels, ignore=4):
    """The weight of one counted label, over the labels of all ranks."""
    counted = (labels != ignore).sum().float()
    dist.all_reduce(counted)
    return dist.get_world_size() / counted.clamp(min=1)


def train(loader, model, opt, epochs):
    step = 0
    for epoch in range(epochs):
        loader.sampler.set_epoch(epoch)
        for batch in loader:
            logits = model(batch)
            share = global_share(batch.labels)
            loss = nn.functional.cross_entropy(logits, batch.labels, reduction="sum") * share
            loss.backward()
            opt.step()
            opt.zero_grad()
            step += 1
            if step % 5 == 0:
                log.info("epoch %d step %d loss %.4f", epoch, step, loss.item())


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(11)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    data = CaptionPairs()
    sampler = DistributedSampler(data, shuffle=False)
    loader = DataLoader(data, batch_size=3, sampler=sampler, collate_fn=collate)
    model = shard(MixedModel(), mesh)
    train(loader, model, torch.optim.SGD(model.parameters(), lr=0.05), epochs=3)
    log.info("finished")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
