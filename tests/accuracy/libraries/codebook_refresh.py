# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD101", "HD106", "HD109"]
# culprits = [1]
# lines = [37, 39, 68, 69, 75, 84]
# branch = ["expired.any()"]
# source = "https://github.com/facebookresearch/audiocraft/pull/374"
# ///
"""Trains a small audio codec (encoder, vector quantizer with EMA codebook, decoder) data-parallel on clips grouped by source."""
import logging
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

log = logging.getLogger("codec")


@dataclass
class CodecConfig:
    frame: int = 32
    dim: int = 4
    codes: int = 8
    decay: float = 0.85
    floor: float = 0.02
    steps: int = 120
    batch: int = 128
    lr: float = 0.005


def broadcast_tensors(tensors, src=0):
    works = [dist.broadcast(t, src=src, async_op=True) for t in tensors]
    for work in works:
        work.wait()


class EuclideanCodebook(nn.Module):
    """Codebook learnt by exponential moving averages; codes nobody uses are replaced by fresh vectors of the batch."""

    def __init__(self, cfg):
        super().__init__()
        self.decay, self.floor = cfg.decay, cfg.floor
        embed = torch.zeros(cfg.codes, cfg.dim)
        self.register_buffer("embed", embed)
        self.register_buffer("embed_avg", embed.clone())
        self.register_buffer("usage", torch.ones(cfg.codes) * 4)

    def seed_from(self, vectors):
        self.embed.copy_(vectors[:len(self.embed)])
        self.embed_avg.copy_(self.embed * self.usage.unsqueeze(1))

    def nearest(self, flat):
        return torch.cdist(flat, self.embed).argmin(dim=1)

    def update_ema(self, flat, index):
        onehot = F.one_hot(index, self.embed.shape[0]).type(flat.dtype)
        self.usage.mul_(self.decay).add_(onehot.sum(0), alpha=1 - self.decay)
        self.embed_avg.mul_(self.decay).add_(onehot.t() @ flat, alpha=1 - self.decay)
        live = self.usage > self.floor
        self.embed[live] = (self.embed_avg / self.usage.clamp_min(1e-3).unsqueeze(1))[live]

    def expire_codes(self, flat):
        expired = self.usage < self.floor
        if not expired.any():
            return 0
        pick = torch.randint(0, len(flat), (int(expired.sum()),))
        self.embed[expired] = flat[pick]
        self.embed_avg[expired] = flat[pick]
        self.usage[expired] = 1.0
        broadcast_tensors([self.embed, self.embed_avg, self.usage])
        return int(expired.sum())

    def forward(self, z):
        flat = z.detach()
        index = self.nearest(flat)
        quantized = self.embed[index]
        if self.training:
            self.update_ema(flat, index)
            replaced = self.expire_codes(flat)
            if replaced:
                log.info("replaced %d codes", replaced)
        return z + (quantized - z).detach(), F.mse_loss(z, quantized.detach())


class Codec(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(cfg.frame, 32), nn.Tanh(), nn.Linear(32, cfg.dim), nn.LayerNorm(cfg.dim))
        self.quantizer = EuclideanCodebook(cfg)
        with torch.no_grad():
            self.quantizer.seed_from(self.encoder(torch.randn(64, cfg.frame)))
        self.decoder = nn.Sequential(nn.Linear(cfg.dim, 32), nn.Tanh(), nn.Linear(32, cfg.frame))

    def forward(self, frames):
        z, commit = self.quantizer(self.encoder(frames))
        return F.mse_loss(self.decoder(z), frames) + 0.25 * commit


class ClipFeed:
    """Every worker reads the recordings of one source: speech, music, street, studio."""

    def __init__(self, cfg, rank):
        self.cfg, self.rank = cfg, rank
        self.gen = torch.Generator().manual_seed(40 + rank)

    def next(self, step):
        frames = torch.randn(self.cfg.batch, self.cfg.frame, generator=self.gen)
        if self.rank == 1 and step >= 12:
            quiet = torch.linspace(0, 1, self.cfg.frame)
            frames = quiet + 0.01 * frames
        return frames


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO, format=f"[{rank}] %(message)s")
    cfg = CodecConfig()
    torch.manual_seed(1)
    model = DistributedDataParallel(Codec(cfg), broadcast_buffers=False)
    feed = ClipFeed(cfg, rank)
    for step in range(cfg.steps):
        loss = model(feed.next(step))
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= cfg.lr * p.grad
                p.grad = None
        if rank == 0 and step % 10 == 0:
            log.info("step %d loss %.4f", step, loss.item())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
