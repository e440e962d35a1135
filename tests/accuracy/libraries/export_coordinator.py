# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 6"
# requires = []
# outcome = "hang"
# causes_any = ["HD105"]
# culprits = [3, 4, 5]
# culprits_any = [[0, 1, 2]]
# lines = [41, 42, 43, 61, 62, 63]
# branch = ["local.exists()", "self.rank == writer"]
# source = "https://github.com/radixark/miles/pull/833"
# ///
"""Data-parallel training on two hosts; per-rank reports are gathered by a writer process that keeps the run's journal."""
import json
import logging
import os
import pathlib
import tempfile
from dataclasses import asdict, dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("dp")
HOST_SIZE = 3


@dataclass
class Settings:
    """Site settings; a host may carry a local file with its own values."""

    writer: int = 0
    report_every: int = 15
    keep: int = 3

    @classmethod
    def for_host(cls, folder):
        local = folder / "site.json"
        overrides = {}
        if local.exists():
            overrides = json.loads(local.read_text())
        return cls(**{**asdict(cls()), **overrides})


def provision(root):
    """Lays out the host folders like the images of the cluster do."""
    images = {"host0": {"keep": 5}, "host1": {"writer": HOST_SIZE, "keep": 5}}
    for host, values in images.items():
        (root / host).mkdir(parents=True, exist_ok=True)
        (root / host / "site.json").write_text(json.dumps(values))


class Journal:
    def __init__(self, folder, settings):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.settings, self.folder = settings, folder
        self.entries = []

    def collect(self, step, report):
        writer = self.settings.writer
        box = [None] * self.world if self.rank == writer else None
        dist.gather_object(report, box, dst=writer)
        if box is not None:
            self.entries = (self.entries + [{"step": step, "ranks": box}])[-self.settings.keep :]
            (self.folder / "journal.json").write_text(json.dumps(self.entries))


class Worker:
    def __init__(self, root):
        self.rank = dist.get_rank()
        host = root / f"host{self.rank // HOST_SIZE}"
        self.settings = Settings.for_host(host)
        self.journal = Journal(host, self.settings)
        torch.manual_seed(0)
        self.model = DDP(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1)))
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.02)
        self.gen = torch.Generator().manual_seed(self.rank)

    def step(self):
        x = torch.randn(8, 16, generator=self.gen)
        loss = (self.model(x).squeeze(1) - x.sum(1)).pow(2).mean()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
        self.opt.step()
        self.opt.zero_grad()
        return {"loss": round(loss.item(), 4), "norm": round(norm.item(), 4)}

    def run(self, steps):
        for step in range(1, steps + 1):
            report = self.step()
            if step % self.settings.report_every == 0:
                self.journal.collect(step, report)
                log.info("step %d %s", step, report)


def main():
    dist.init_process_group("gloo")
    logging.basicConfig(level=logging.INFO, format=f"[{dist.get_rank()}] %(message)s")
    root = pathlib.Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / f"hosts-{os.environ['TORCHELASTIC_RUN_ID'][:8]}"
    if int(os.environ["LOCAL_RANK"]) == 0:
        provision(root)
    dist.barrier()
    Worker(root).run(60)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
