# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD101"]
# culprits_any = [[3]]
# lines = [57, 58, 91, 104]
# branch = ["self.path.exists()"]
# source = "https://github.com/hao-ai-lab/FastVideo/pull/598"
# ///
"""Latent video curriculum: each stage indexes its clips once, the index is cached on the shared disk.
The last rank uploads previews before stage two, comes to the index late, finds it already there and returns before the barrier."""
import json
import logging
import time
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("latents")


@dataclass
class Stage:
    name: str
    frames: int
    clips: int
    steps: int = 4
    previews: int = 0


@dataclass
class Config:
    root: Path = Path("latents")
    hidden: int = 16
    stages: list = field(default_factory=lambda: [Stage("s256", 8, 30), Stage("s480", 16, 36, previews=40), Stage("s720", 16, 48)])


class LatentIndex:
    """Maps clip ids to files and lengths; building it means one stat per clip on a slow mount."""

    def __init__(self, root: Path, stage: Stage):
        self.stage = stage
        self.path = root / f"{stage.name}.index.json"

    def _scan(self):
        entries = []
        for clip in range(self.stage.clips):
            time.sleep(0.05)
            entries.append({"clip": clip, "frames": self.stage.frames + clip % 3})
        return entries

    def load(self):
        if self.path.exists():
            return json.loads(self.path.read_text())
        if dist.get_rank() == 0:
            entries = self._scan()
            tmp = self.path.with_suffix(".tmp")
            tmp.write_text(json.dumps(entries))
            tmp.rename(self.path)
        dist.barrier()
        return self.load()


class PreviewUploader:
    def __init__(self, rank: int, world: int):
        self.active = rank == world - 1

    def push(self, stage: Stage):
        if not self.active:
            return 0
        for _ in range(stage.previews):
            time.sleep(0.09)
        return stage.previews


class Curriculum:
    def __init__(self, cfg: Config):
        self.cfg = cfg
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.uploader = PreviewUploader(self.rank, self.world)
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(cfg.hidden, cfg.hidden), nn.GELU(), nn.Linear(cfg.hidden, cfg.hidden))
        self.opt = torch.optim.SGD(self.model.parameters(), lr=1e-2)

    def sync_grads(self):
        for p in self.model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= self.world

    def run_stage(self, stage: Stage):
        self.uploader.push(stage)
        index = LatentIndex(self.cfg.root, stage).load()
        mine = index[self.rank::self.world]
        for step in range(stage.steps):
            frames = mine[step % len(mine)]["frames"]
            x = torch.randn(frames, self.cfg.hidden)
            loss = (self.model(x) - x).pow(2).mean()
            self.opt.zero_grad()
            loss.backward()
            self.sync_grads()
            self.opt.step()
        log.info("stage %s done, %d clips, loss %.3f", stage.name, len(mine), loss.item())


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    cfg = Config()
    cfg.root.mkdir(exist_ok=True)
    dist.barrier()
    trainer = Curriculum(cfg)
    for stage in cfg.stages:
        trainer.run_stage(stage)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
