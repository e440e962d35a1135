# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD109", "HD101"]
# culprits = [1]
# lines = [63, 64, 65, 121]
# branch = ["random.random() < self.layerdrop"]
# source = "https://github.com/facebookresearch/fairscale/issues/796"
# ///
"""A wav2vec-like encoder sharded block by block with fully_shard is trained with LayerDrop. Every rank seeds `random` with its own
seed so that augmentation differs, and LayerDrop draws from the same generator: at one step one rank skips a sharded block."""
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

logger = logging.getLogger("pretrain")


@dataclass
class PretrainConfig:
    dim: int = 16
    layers: int = 5
    frames: int = 12
    batch_size: int = 2
    steps: int = 400
    lr: float = 2e-3
    layerdrop: float = 0.02
    mask_prob: float = 0.3
    seed: int = 320
    log_every: int = 2


class EncoderBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 2 * dim)
        self.down = nn.Linear(2 * dim, dim)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class SpeechEncoder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.layerdrop = cfg.layerdrop
        self.project = nn.Linear(cfg.dim, cfg.dim)
        self.blocks = nn.ModuleList(EncoderBlock(cfg.dim) for _ in range(cfg.layers))
        self.head = nn.Linear(cfg.dim, cfg.dim)

    def forward(self, features):
        x = self.project(features)
        for block in self.blocks:
            if self.training and random.random() < self.layerdrop:
                continue
            x = block(x)
        return self.head(x)


class Augment:
    """Masks a span of frames and jitters the gain."""

    def __init__(self, cfg):
        self.cfg = cfg

    def __call__(self, clip):
        gain = 1.0 + 0.1 * (random.random() - 0.5)
        start = random.randrange(self.cfg.frames)
        width = int(self.cfg.frames * self.cfg.mask_prob)
        clip = clip * gain
        target = clip.clone()
        clip[start:start + width] = 0.0
        return clip, target


class ClipDataset(torch.utils.data.Dataset):
    def __init__(self, cfg, rank):
        self.cfg, self.augment = cfg, Augment(cfg)
        self.gen = torch.Generator().manual_seed(100 + rank)

    def __len__(self):
        return self.cfg.steps * self.cfg.batch_size

    def __getitem__(self, index):
        return self.augment(torch.randn(self.cfg.frames, self.cfg.dim, generator=self.gen))


def seed_everything(seed, rank):
    torch.manual_seed(seed)
    random.seed(seed * 1000 + rank)


def shard(model, mesh):
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    cfg = PretrainConfig()
    seed_everything(cfg.seed, rank)
    model = shard(SpeechEncoder(cfg), init_device_mesh("cpu", (world,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    loader = torch.utils.data.DataLoader(ClipDataset(cfg, rank), batch_size=cfg.batch_size)
    model.train()
    for step, (clip, target) in enumerate(loader):
        loss = F.mse_loss(model(clip), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % cfg.log_every == 0 and rank == 0:
            logger.info("step %d loss %.4f", step, loss.item())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
