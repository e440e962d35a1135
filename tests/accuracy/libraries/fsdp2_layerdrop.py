# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD109", "HD101"]
# culprits = [1]
# lines = [63, 64, 65]
# branch = ["random.random() < self.layerdrop"]
# source = "https://github.com/facebookresearch/fairscale/issues/796"
# ///
"""Speech encoder with LayerDrop, each block wrapped with fully_shard. The Python random state is seeded per process so that
augmentation differs."""
import logging
import random
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

log = logging.getLogger("wav")


@dataclass
class EncoderConfig:
    dim: int = 16
    heads: int = 2
    layers: int = 5
    layerdrop: float = 0.03
    frames: int = 12
    vocab: int = 10
    steps: int = 80
    batch: int = 4
    seed: int = 763


class Block(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(cfg.dim), nn.LayerNorm(cfg.dim)
        self.attention = nn.MultiheadAttention(cfg.dim, cfg.heads, batch_first=True)
        self.ffn = nn.Sequential(nn.Linear(cfg.dim, 2 * cfg.dim), nn.GELU(), nn.Linear(2 * cfg.dim, cfg.dim))

    def forward(self, x):
        h = self.norm1(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return x + self.ffn(self.norm2(x))


class Encoder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.layerdrop = cfg.layerdrop
        self.project = nn.Linear(cfg.dim, cfg.dim)
        self.layers = nn.ModuleList(Block(cfg) for _ in range(cfg.layers))
        self.out = nn.Linear(cfg.dim, cfg.vocab)

    def forward(self, frames):
        x = self.project(frames)
        for layer in self.layers:
            if self.training and random.random() < self.layerdrop:
                continue
            x = layer(x)
        return self.out(x)


class Utterances:
    def __init__(self, cfg, rank):
        self.cfg = cfg
        self.generator = torch.Generator().manual_seed(900 + rank)

    def __iter__(self):
        for _ in range(self.cfg.steps):
            frames = torch.randn(self.cfg.batch, self.cfg.frames, self.cfg.dim, generator=self.generator)
            yield frames, frames[..., : self.cfg.vocab].argmax(-1)


def shard(model, mesh):
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def learning_rate(step, base=3e-3, warmup=10):
    return base * min(1.0, (step + 1) / warmup)


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    cfg, rank = EncoderConfig(), dist.get_rank()
    torch.manual_seed(cfg.seed)
    random.seed(cfg.seed + rank)
    model = shard(Encoder(cfg), init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate(0))
    model.train()
    for step, (frames, target) in enumerate(Utterances(cfg, rank)):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        loss = F.cross_entropy(model(frames).flatten(0, 1), target.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0 and step % 5 == 0:
            log.info("step %d loss %.3f", step, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
