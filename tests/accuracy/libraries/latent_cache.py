# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = ["accelerate", "datasets"]
# outcome = "hang"
# causes_any = ["HD101", "HD109"]
# culprits_any = [[0], [1]]
# lines = [52, 58]
# branch = ["self.index_file.exists()"]
# source = "https://github.com/hao-ai-lab/FastVideo/pull/598"
# ///
"""Latent-diffusion style training: cached index of the latents, then accelerate."""
import json
import logging
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from accelerate import Accelerator
from datasets import Dataset
from torch import nn
from torch.utils.data import DataLoader

log = logging.getLogger("latents")


@dataclass
class LatentConfig:
    root: Path
    shards: int = 6
    rows: int = 16
    dim: int = 10
    epochs: int = 2


class LatentIndex:
    def __init__(self, cfg: LatentConfig, accelerator: Accelerator):
        self.cfg = cfg
        self.accelerator = accelerator
        self.index_file = cfg.root / "index.json"

    def scan(self):
        entries = []
        for path in sorted(self.cfg.root.glob("shard_*.pt")):
            entries.append({"path": str(path), "rows": len(torch.load(path))})
        return entries

    def load(self):
        """Returns the cached index; the main process builds it when there is none."""
        if self.index_file.exists():
            return json.loads(self.index_file.read_text())
        if self.accelerator.is_main_process:
            tmp = self.index_file.with_suffix(".part")
            tmp.write_text(json.dumps(self.scan()))
            os.replace(tmp, self.index_file)
        self.accelerator.wait_for_everyone()
        return self.load()


class LatentStore:
    """Copies the latents of this process from the object store, then opens them."""

    def __init__(self, cfg: LatentConfig, accelerator: Accelerator):
        self.cfg = cfg
        self.accelerator = accelerator

    def stage(self):
        mine = range(self.accelerator.process_index, self.cfg.shards, self.accelerator.num_processes)
        for n in mine:
            torch.save(torch.randn(self.cfg.rows, self.cfg.dim), self.cfg.root / f"shard_{n:02d}.pt")
        self.accelerator.wait_for_everyone()

    def verify(self) -> int:
        """Checks the other processes' shards; slower for each shard that was not staged here."""
        total = 0
        for n in range(self.cfg.shards):
            path = self.cfg.root / f"shard_{n:02d}.pt"
            total += path.stat().st_size
            if n % self.accelerator.num_processes != 0:
                time.sleep(0.8 * self.accelerator.process_index)
        return total

    def dataset(self, index):
        rows = torch.cat([torch.load(e["path"]) for e in index])
        return Dataset.from_dict({"latent": rows.tolist()}).with_format("torch")


def train(cfg: LatentConfig, accelerator: Accelerator):
    store = LatentStore(cfg, accelerator)
    store.stage()
    size = store.verify()
    index = LatentIndex(cfg, accelerator).load()
    log.info("process %d: %d bytes in %d shards", accelerator.process_index, size, len(index))
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(cfg.dim, 32), nn.SiLU(), nn.Linear(32, cfg.dim))
    loader = DataLoader(store.dataset(index), batch_size=8, shuffle=True)
    net, opt, loader = accelerator.prepare(net, torch.optim.AdamW(net.parameters(), lr=1e-3), loader)
    for epoch in range(cfg.epochs):
        for batch in loader:
            noise = torch.randn_like(batch["latent"])
            loss = (net(batch["latent"] + noise) - noise).pow(2).mean()
            opt.zero_grad()
            accelerator.backward(loss)
            opt.step()
        accelerator.print(f"epoch {epoch} loss {loss.item():.4f}")


def main():
    logging.basicConfig(level=logging.INFO)
    root = Path(tempfile.gettempdir()) / ("latents_" + os.environ.get("MASTER_PORT", "0"))
    root.mkdir(exist_ok=True)
    accelerator = Accelerator(cpu=True)
    train(LatentConfig(root=root), accelerator)
    accelerator.end_training()


if __name__ == "__main__":
    main()
