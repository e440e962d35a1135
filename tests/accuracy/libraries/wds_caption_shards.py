# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 5"
# requires = ["webdataset"]
# outcome = "hang"
# causes_any = ["HD102"]
# culprits = [4]
# lines = [78, 94, 106, 107, 109, 112]
# source = "https://github.com/webdataset/webdataset/issues/188"
# ///
"""CLIP-like contrastive training on webdataset shards; the shard list is split by node, features are gathered over
processes for the loss."""
import io
import logging
import os
import tarfile
import tempfile
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import webdataset as wds
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("clip")


@dataclass
class ClipConfig:
    shards: int = 9
    per_shard: int = 20
    features: int = 12
    dim: int = 8
    batch_size: int = 4
    epochs: int = 3


def write_shards(folder, cfg):
    """As the crawler writes them: image features and caption features as .pth members."""
    gen = torch.Generator().manual_seed(3)
    for s in range(cfg.shards):
        with tarfile.open(folder / f"laion-{s:05d}.tar", "w") as tar:
            for i in range(cfg.per_shard):
                for ext in ("image.pth", "text.pth"):
                    buffer = io.BytesIO()
                    torch.save(torch.randn(cfg.features, generator=gen), buffer)
                    info = tarfile.TarInfo(f"{s:05d}{i:04d}.{ext}")
                    info.size = buffer.tell()
                    buffer.seek(0)
                    tar.addfile(info, buffer)


def make_loader(folder, cfg):
    urls = sorted(str(p) for p in folder.glob("laion-*.tar"))
    dataset = (wds.WebDataset(urls, shardshuffle=False, nodesplitter=wds.split_by_node, empty_check=False)
               .decode().to_tuple("image.pth", "text.pth").batched(cfg.batch_size, partial=False))
    return wds.WebLoader(dataset, batch_size=None, num_workers=0)


class Towers(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.image = nn.Sequential(nn.Linear(cfg.features, 16), nn.GELU(), nn.Linear(16, cfg.dim))
        self.text = nn.Sequential(nn.Linear(cfg.features, 16), nn.GELU(), nn.Linear(16, cfg.dim))
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, image, text):
        norm = nn.functional.normalize
        return norm(self.image(image), dim=-1), norm(self.text(text), dim=-1), self.scale.exp()


def gather_features(local):
    """Others' features without gradient, own with gradient."""
    parts = [torch.zeros_like(local) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, local.detach())
    parts[dist.get_rank()] = local
    return torch.cat(parts)


class ContrastiveTraining:
    def __init__(self, cfg, folder):
        self.cfg, self.rank = cfg, dist.get_rank()
        torch.manual_seed(0)
        self.model = DDP(Towers(cfg))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.loader = make_loader(folder, cfg)
        self.seen = 0

    def step(self, image, text):
        a, b, scale = self.model(image, text)
        logits = scale * a @ gather_features(b).t()
        target = torch.arange(len(a)) + self.rank * len(a)
        loss = nn.functional.cross_entropy(logits, target)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.seen += len(image)
        return loss.item()

    def fit(self):
        for epoch in range(self.cfg.epochs):
            loss = float("nan")
            for image, text in self.loader:
                loss = self.step(torch.as_tensor(image), torch.as_tensor(text))
            seen = torch.tensor([self.seen])
            dist.reduce(seen, dst=0)
            if self.rank == 0:
                log.info("epoch %d loss %.3f pairs so far %d", epoch, loss, seen.item())
            dist.barrier()


def main():
    torch.set_num_threads(1)
    cfg = ClipConfig()
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    box = [tempfile.mkdtemp(prefix="laion-")]
    dist.broadcast_object_list(box, src=0)
    folder = Path(box[0])
    if dist.get_rank() == 0:
        write_shards(folder, cfg)
    dist.barrier()
    ContrastiveTraining(cfg, folder).fit()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
