# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD108"]
# culprits = [2]
# culprits_any = [[0, 1], [0, 1, 2]]
# lines = [63, 64, 74, 89, 33, 92]
# source = "https://github.com/KempnerInstitute/KempnerForge/issues/104"
# ///
"""Trains a model whose experts live on one rank each and saves it with torch.distributed.checkpoint's async_save while training goes on."""
import logging
import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint import DefaultSavePlanner

log = logging.getLogger("async")


class ExpertPlanner(DefaultSavePlanner):
    """Adds a fingerprint per expert table to the plan, so that a restore can tell stale experts."""

    def create_local_plan(self):
        plan = super().create_local_plan()
        for fqn, tensor in self.state_dict.items():
            if fqn.startswith("expert"):
                tensor = tensor.to(torch.float32).clone()
                mark = 0
                for row in tensor:
                    mark = hash((mark, float(row.sum()))) & 0xffffffff
                log.info("%s fingerprint %08x", fqn, mark)
        return plan


class Model(nn.Module):
    def __init__(self, rank, rows):
        super().__init__()
        self.dense = nn.Linear(16, 16)
        self.name = f"expert{rank}"
        self.expert = nn.Embedding(rows, 4)

    def forward(self, x, ids):
        return (self.dense(x).sum(-1) - self.expert(ids).sum(-1)) ** 2

    def checkpoint(self):
        return {"dense.weight": self.dense.weight.detach(), "dense.bias": self.dense.bias.detach(),
                self.name: self.expert.weight.detach()}


class CheckpointManager:
    def __init__(self, root):
        self.root, self.pending = root, None

    def save(self, step, model):
        if self.pending is not None:
            self.pending.result()
        self.pending = dcp.async_save(model.checkpoint(), checkpoint_id=self.root / f"step{step}", planner=ExpertPlanner())
        dist.barrier()  # everybody has handed over
        log.info("step %d handed over", step)

    def close(self):
        if self.pending is not None:
            self.pending.result()


def sync_dense(model, world):
    for p in model.dense.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world


def train(root, rank, world, steps=40, every=20):
    torch.manual_seed(0)
    vocabulary = {"numbers": 400, "names": 700, "urls": 260_000}
    rows = list(vocabulary.values())[rank]
    model, saver = Model(rank, rows), CheckpointManager(root)
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    gen = torch.Generator().manual_seed(rank)
    for step in range(1, steps + 1):
        loss = model(torch.randn(8, 16, generator=gen), torch.randint(0, rows, (8,), generator=gen)).mean()
        opt.zero_grad()
        loss.backward()
        sync_dense(model, world)
        opt.step()
        if step % every == 0:
            saver.save(step, model)
    saver.close()
    log.info("final loss %.3f", loss.item())


def main():
    dist.init_process_group("cpu:gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    logging.basicConfig(level=logging.INFO, format=f"[{rank}] %(message)s")
    root = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "async-ckpt"
    train(root, rank, world)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
