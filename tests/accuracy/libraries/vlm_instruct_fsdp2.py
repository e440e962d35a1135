# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD109", "HD101"]
# culprits = [2]
# lines = [81, 82, 87, 112, 114, 140]
# branch = ["pixel_values is not None", "if images", "s[\"image\"] is not None"]
# source = "https://github.com/pytorch/pytorch/issues/152964"
# ///
"""Instruction tuning of a small vision-language model; the text decoder is sharded over the world, the vision tower within a node."""
import logging
import os
import random
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Dataset, DistributedSampler

log = logging.getLogger("vlm")


@dataclass
class Config:
    vocab: int = 256
    width: int = 48
    depth: int = 3
    patch: int = 8
    image: int = 32
    seq: int = 24
    batch: int = 2
    steps: int = 120
    node_size: int = 2
    image_share: float = 0.72
    seed: int = 16


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = nn.MultiheadAttention(width, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attn(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class VisionTower(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.patchify = nn.Conv2d(3, cfg.width, cfg.patch, cfg.patch)
        self.blocks = nn.ModuleList(Block(cfg.width) for _ in range(2))

    def forward(self, pixels):
        x = self.patchify(pixels).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return x


class ChatVLM(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.vision = VisionTower(cfg)
        self.projector = nn.Linear(cfg.width, cfg.width)
        self.embed = nn.Embedding(cfg.vocab, cfg.width)
        self.blocks = nn.ModuleList(Block(cfg.width) for _ in range(cfg.depth))
        self.head = nn.Linear(cfg.width, cfg.vocab)

    def forward(self, input_ids, labels, pixel_values=None):
        hidden = self.embed(input_ids)
        offset = 0
        if pixel_values is not None:
            visual = self.projector(self.vision(pixel_values))
            pad = hidden.shape[0] - visual.shape[0]
            hidden = torch.cat([F.pad(visual, (0, 0, 0, 0, 0, pad)), hidden], dim=1)
            offset = visual.shape[1]
        for block in self.blocks:
            hidden = block(hidden)
        logits = self.head(hidden[:, offset:])
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


class ChatMix(Dataset):
    """A mix of picture conversations and plain text conversations."""

    def __init__(self, cfg, size=1600):
        self.cfg = cfg
        rng = random.Random(cfg.seed)
        self.kinds = ["picture" if rng.random() < cfg.image_share else "text" for _ in range(size)]

    def __len__(self):
        return len(self.kinds)

    def __getitem__(self, i):
        gen = torch.Generator().manual_seed(i)
        ids = torch.randint(0, self.cfg.vocab, (self.cfg.seq,), generator=gen)
        side = self.cfg.image
        image = torch.rand(3, side, side, generator=gen) if self.kinds[i] == "picture" else None
        return {"ids": ids, "image": image}


def collate(samples):
    images = [s["image"] for s in samples if s["image"] is not None]
    ids = torch.stack([s["ids"] for s in samples])
    return dict(input_ids=ids, labels=ids.roll(-1, 1), pixel_values=torch.stack(images) if images else None)


def shard(model, cfg):
    world = dist.get_world_size()
    mesh = init_device_mesh("cpu", (world // cfg.node_size, cfg.node_size), mesh_dim_names=("node", "local"))
    everywhere = init_device_mesh("cpu", (world,), mesh_dim_names=("world",))
    fully_shard(model.vision, mesh=mesh["local"])
    for block in model.blocks:
        fully_shard(block, mesh=everywhere)
    return fully_shard(model, mesh=everywhere)


class Tuner:
    def __init__(self, cfg):
        self.cfg = cfg
        torch.manual_seed(cfg.seed)
        self.model = shard(ChatVLM(cfg), cfg)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=3e-4, foreach=False)
        data = ChatMix(cfg)
        self.loader = DataLoader(data, cfg.batch, sampler=DistributedSampler(data, seed=cfg.seed), collate_fn=collate)

    def fit(self):
        for step, batch in enumerate(self.loader):
            if step >= self.cfg.steps:
                break
            out = self.model(**batch)
            out.backward()
            self.opt.step()
            self.opt.zero_grad()
            if step % 5 == 0:
                log.info("step %d loss %.3f", step, out.item())


def main():
    dist.init_process_group("gloo")
    logging.basicConfig(level=logging.INFO, format=f"[{dist.get_rank()}] %(message)s")
    Tuner(Config()).fit()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
