# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = ["torch"]
# outcome = "hang"
# cause = "HD108"
# culprits_any = [[0], [1], [0, 1]]
# lines = [31, 49, 51]
# source = "https://github.com/KempnerInstitute/KempnerForge/issues/104"
# ///
"""A checkpoint manager starts dcp.async_save, whose background thread plans the save with collectives on the default
group, and then calls barrier on the same group from the main thread.  Which comes first differs by rank."""
import os
import tempfile
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint import DefaultSavePlanner
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.nn.parallel import DistributedDataParallel


class CountingPlanner(DefaultSavePlanner):
    """Adds up what will be written; the rank with the data-loader state has more to go through."""

    def create_local_plan(self):
        plan = super().create_local_plan()
        if dist.get_rank() == 1:
            time.sleep(0.8)
        return plan


class CheckpointManager:
    def __init__(self, root, every):
        self.root, self.every = root, every
        self.pending = None

    def wait(self):
        if self.pending is not None:
            self.pending.result()
            self.pending = None

    def save(self, step, model, optimizer):
        self.wait()
        weights, optim = get_state_dict(model, optimizer)
        path = os.path.join(self.root, f"step_{step}")
        self.pending = dcp.async_save({"model": weights, "optim": optim, "step": step}, checkpoint_id=path,
                                      planner=CountingPlanner())
        dist.barrier()
        if dist.get_rank() == 0:
            with open(os.path.join(self.root, "latest"), "w") as f:
                f.write(path)

    def maybe_save(self, step, model, optimizer):
        if step % self.every == 0:
            self.save(step, model, optimizer)


def train(manager, steps=60):
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32)))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for step in range(1, steps + 1):
        x = torch.randn(8, 32)
        loss = (model(x) - x).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        manager.maybe_save(step, model, optimizer)
    manager.wait()


def main():
    dist.init_process_group("gloo")
    root = os.path.join(tempfile.gettempdir(), "dcp-" + os.environ["TORCHELASTIC_RUN_ID"])
    os.makedirs(root, exist_ok=True)
    train(CheckpointManager(root, every=10))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
