# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD101"]
# culprits = [2]
# lines = [62, 63, 70, 88]
# branch = ["self.index_file.exists()"]
# source = "https://github.com/hao-ai-lab/FastVideo/pull/598"
# ///
"""Prepares a latent-video data set (one part verified per rank, one shared index) and trains a small denoiser on it."""
import json
import logging
import os
import tempfile
import zlib
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("latents")


class LatentPart:
    """A part of the data set; recovered parts must be verified record by record before use."""

    def __init__(self, name, records, recovered):
        self.name, self.records, self.recovered = name, records, recovered

    def blob(self, i):
        return f"{self.name}:{i}".encode() * 40

    def verify(self):
        if not self.recovered:
            return 0
        crc = 0
        for i in range(self.records):
            crc = zlib.crc32(self.blob(i), crc)
        log.info("part %s verified (crc %08x)", self.name, crc)
        return crc


class LatentDataset:
    def __init__(self, root: Path, parts, rank):
        self.root, self.parts, self.rank = root, parts, rank
        self.index_file = root / "index.json"

    def read_index(self):
        return json.loads(self.index_file.read_text())

    def scan(self):
        """Lists every record with its length, as one pass over the parts would."""
        index = []
        for part in self.parts:
            for i in range(0, part.records, 3):
                index.append([part.name, i, len(part.blob(i)), zlib.crc32(part.blob(i)) & 0xffff])
        return index

    def load_index(self):
        if self.index_file.exists():
            return self.read_index()
        if self.rank == 0:
            index = self.scan()
            tmp = self.index_file.with_suffix(".tmp")
            tmp.write_text(json.dumps(index))
            tmp.rename(self.index_file)
            log.info("index written: %d records", len(index))
        dist.barrier()  # the index is complete
        return self.load_index()


class Denoiser(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, 32), nn.SiLU(), nn.Linear(32, dim))

    def forward(self, x, noise):
        return ((self.net(x + noise) - noise) ** 2).mean()


def train(index, rank, world, steps=30):
    torch.manual_seed(0)
    model, gen = Denoiser(), torch.Generator().manual_seed(rank)
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    total = torch.tensor([float(len(index[rank::world]))])
    dist.all_reduce(total)
    log.info("%d of %d records here", len(index[rank::world]), int(total))
    for step in range(steps):
        x = torch.randn(8, 16, generator=gen)
        loss = model(x, torch.randn(8, 16, generator=gen))
        opt.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        opt.step()
    log.info("final loss %.4f", loss.item())


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    logging.basicConfig(level=logging.INFO, format=f"[{rank}] %(message)s")
    root = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "latents"
    root.mkdir(parents=True, exist_ok=True)
    parts = [LatentPart("clips-a", 90_000, False), LatentPart("clips-b", 90_000, False), LatentPart("clips-c", 2_400_000, True)]
    dist.barrier()
    parts[rank].verify()
    dataset = LatentDataset(root, parts[:2], rank)
    index = dataset.load_index()
    train(index, rank, world)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
