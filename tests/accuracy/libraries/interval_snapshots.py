# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD101", "HD109", "HD505", "HD106", "HD110"]
# culprits_any = [[3], [0, 1, 2]]
# lines = [59, 65, 69, 72, 73, 101, 102]
# branch = ["time.monotonic() - self._last_saved < self.interval", "self._pending is not None", "not self._due()"]
# source = "https://github.com/InternLM/xtuner/pull/1852"
# ///
"""Training loop with asynchronous snapshots at a wall-clock interval (torch.distributed.checkpoint)."""
import logging
import os
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

warnings.filterwarnings("ignore")
log = logging.getLogger("snapshots")


@dataclass
class RunConfig:
    steps: int = 40
    step_seconds: float = 0.05
    snapshot_interval: float = 7.0
    corpus_mb: int = 64


class IndexFile:
    """Token index of this rank's part of the corpus; a part without a sidecar is rebuilt at the start."""

    def __init__(self, part, sidecars):
        self.part = part
        self.sidecars = sidecars

    def open(self):
        if self.part not in self.sidecars:
            log.info("part %d: rebuilding the index", self.part)
            time.sleep(6.5)
        return torch.arange(4096) + self.part


class SnapshotManager:
    def __init__(self, root, interval, group):
        self.root = Path(root)
        self.interval = interval
        self.group = group
        self._last_saved = time.monotonic()
        self._pending = None

    def _due(self):
        if time.monotonic() - self._last_saved < self.interval:
            return False
        self._last_saved = time.monotonic()
        return True

    def step(self, step, model):
        if not self._due():
            return
        self.drain()
        state = {"model": model.state_dict(), "step": torch.tensor(step)}
        self._pending = dcp.async_save(state, checkpoint_id=str(self.root / f"step_{step:06d}"), process_group=self.group)

    def drain(self):
        if self._pending is not None:
            self._pending.result()
            self._pending = None


class Loop:
    def __init__(self, cfg, index, snapshots):
        self.cfg = cfg
        self.index = index
        self.snapshots = snapshots
        torch.manual_seed(0)
        self.model = torch.nn.Linear(16, 16)

    def fetch(self, step):
        return self.index[step * 16 : step * 16 + 16].float().remainder(7)

    def train_step(self, step):
        loss = self.model(self.fetch(step)).pow(2).mean()
        grads = torch.autograd.grad(loss, list(self.model.parameters()))
        for p, g in zip(self.model.parameters(), grads):
            dist.all_reduce(g)
            p.data.sub_(g, alpha=1e-3)
        time.sleep(self.cfg.step_seconds)
        return loss.detach()

    def run(self):
        for step in range(self.cfg.steps):
            loss = self.train_step(step)
            self.snapshots.step(step, self.model)
        self.snapshots.drain()
        dist.barrier()
        return loss


def main():
    logging.basicConfig(level=logging.INFO, format="[%(process)d] %(message)s")
    dist.init_process_group("gloo")
    cfg = RunConfig()
    io_group = dist.new_group(backend="gloo")
    warm = torch.zeros(1)
    dist.all_reduce(warm)
    dist.all_reduce(warm, group=io_group)
    root = Path(tempfile.gettempdir()) / f"snap_{os.environ['MASTER_PORT']}"
    index = IndexFile(dist.get_rank(), sidecars={0, 1, 2}).open()
    loop = Loop(cfg, index, SnapshotManager(root, cfg.snapshot_interval, io_group))
    loss = loop.run()
    log.info("done, loss %.4f", loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
