# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "healthy"
# source = "https://github.com/KempnerInstitute/KempnerForge/pull/105"
# ///
"""Asynchronous distributed checkpoints on their own group beside training, and broken batches that all ranks leave out together
after a vote."""
import logging
import os
import pathlib
import tempfile
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("healthy-async")


@dataclass
class Plan:
    features: int = 16
    steps: int = 90
    save_every: int = 20
    pause: float = 0.15
    folder: pathlib.Path = pathlib.Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "async"


class Vote:
    """True on every rank when any rank has a bad loss."""

    def __init__(self, group):
        self.group, self.skipped = group, 0

    def __call__(self, loss):
        flag = torch.tensor(0.0 if torch.isfinite(loss) else 1.0)
        dist.all_reduce(flag, op=dist.ReduceOp.MAX, group=self.group)
        self.skipped += int(flag)
        return bool(flag)


class AsyncSaver:
    def __init__(self, plan, group):
        self.plan, self.group, self.pending = plan, group, None

    def save(self, step, model):
        self.finish()
        state = {"model": {k: v.clone() for k, v in model.state_dict().items()}, "step": step}
        self.pending = dcp.async_save(state, checkpoint_id=str(self.plan.folder / f"step-{step}"), process_group=self.group)

    def finish(self):
        if self.pending is not None:
            self.pending.result()
            self.pending = None


def batches(plan, rank):
    g = torch.Generator().manual_seed(rank)
    for step in range(1, plan.steps + 1):
        time.sleep(plan.pause * (1 + rank) / 4)
        x = torch.randn(8, plan.features, generator=g)
        if (step, rank) in ((17, 2), (44, 0), (45, 3)):
            x[3, 1] = float("inf")
        yield step, x, x.sum(1, keepdim=True)


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    plan, rank = Plan(), dist.get_rank()
    plan.folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(plan.features, 16), nn.GELU(), nn.Linear(16, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    saver, vote = AsyncSaver(plan, dist.new_group(backend="gloo")), Vote(dist.new_group(backend="gloo"))
    for step, x, y in batches(plan, rank):
        loss = F.mse_loss(model(x), y)
        if vote(loss):
            continue
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % plan.save_every == 0:
            saver.save(step, model.module)
        if rank == 0 and step % 20 == 0:
            log.info("step %d loss %.3f skipped %d", step, loss.item(), vote.skipped)
    saver.finish()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
