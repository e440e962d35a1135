# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD103", "HD101"]
# culprits_any = [[1]]
# lines = [44, 45, 64, 76, 77]
# branch = ["except errors", "except IsADirectoryError"]
# source = "https://github.com/pytorch/pytorch/pull/77091"
# ///
"""Sharded checkpoints: sizes are gathered, then each rank moves its shard into place; a decorator retries the whole on file errors.
One rank's target is an old folder; its first attempt fails after the gathering, the second gathers again, alone."""
import functools
import logging
import os
import shutil
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("ckpt")


@dataclass
class RunConfig:
    out: Path = Path("ckpt")
    hidden: int = 20
    steps: int = 30
    save_every: int = 6


def retry(*errors, times=3, pause=0.5):
    """Shared file systems have their moments."""

    def wrap(fn):
        @functools.wraps(fn)
        def call(*args, **kwargs):
            for attempt in range(times):
                try:
                    return fn(*args, **kwargs)
                except errors as err:
                    log.warning("%s: attempt %d failed (%s)", fn.__name__, attempt, err)
                    if attempt == times - 1:
                        raise
                    time.sleep(pause)
        return call

    return wrap


class ShardStore:
    def __init__(self, cfg: RunConfig, rank: int, world: int):
        self.cfg, self.rank, self.world = cfg, rank, world

    def target(self, step):
        return self.cfg.out / f"step{step}" / f"shard-{self.rank}.pt"

    def _place(self, tmp: Path, final: Path):
        try:
            os.replace(tmp, final)
        except IsADirectoryError:
            shutil.rmtree(final)
            raise

    @retry(OSError)
    def publish(self, step, state):
        final = self.target(step)
        final.parent.mkdir(parents=True, exist_ok=True)
        tmp = final.with_name(final.name + ".tmp")
        torch.save(state, tmp)
        sizes = [None] * self.world
        dist.all_gather_object(sizes, tmp.stat().st_size)
        self._place(tmp, final)
        return sizes


class Trainer:
    def __init__(self, cfg: RunConfig):
        self.cfg, self.rank, self.world = cfg, dist.get_rank(), dist.get_world_size()
        torch.manual_seed(0)
        self.model = nn.Linear(cfg.hidden, cfg.hidden)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.store = ShardStore(cfg, self.rank, self.world)

    def step(self, n):
        g = torch.Generator().manual_seed(n * 17 + self.rank)
        x = torch.randn(8, self.cfg.hidden, generator=g)
        loss = (self.model(x) - x.flip(1)).pow(2).mean()
        self.opt.zero_grad()
        loss.backward()
        for p in self.model.parameters():
            dist.all_reduce(p.grad)
            p.grad.div_(self.world)
        self.opt.step()
        return loss.item()

    def run(self):
        for n in range(1, self.cfg.steps + 1):
            loss = self.step(n)
            if n % self.cfg.save_every == 0:
                sizes = self.store.publish(n, self.model.state_dict())
                if self.rank == 0:
                    log.info("step %d loss %.3f, shards %s", n, loss, sizes)


def old_layout(cfg: RunConfig):
    """A run with an earlier version left a folder where shard 1 of step 18 is to go."""
    (cfg.out / "step18" / "shard-1.pt").mkdir(parents=True, exist_ok=True)
    (cfg.out / "step18" / "shard-1.pt" / "weights.bin").write_bytes(b"\0" * 64)


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    cfg = RunConfig()
    if dist.get_rank() == 0:
        old_layout(cfg)
    dist.barrier()
    Trainer(cfg).run()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
