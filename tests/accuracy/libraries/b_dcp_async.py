# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = []
# outcome = "hang"
# cause = "HD108"
# culprits_any = [[0], [1], [0, 1]]
# lines = [40, 58, 65]
# source = "https://github.com/KempnerInstitute/KempnerForge/issues/104"
# ///
"""dcp.async_save plans its save on a background thread, with collectives on the default group; save() ends with a barrier
of the main thread on the same group. Rank 1's stager is slow, so that the two threads come in another order there."""
import os
import tempfile
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.nn.parallel import DistributedDataParallel as DDP


class SlowMetadataWriter(FileSystemWriter):
    """The folder of rank 1 lies on a slower mount: looking at it takes a while."""

    def set_up_storage_writer(self, is_coordinator, *args, **kwargs):
        if int(os.environ["RANK"]) == 1:
            time.sleep(3)
        return super().set_up_storage_writer(is_coordinator, *args, **kwargs)


class AsyncCheckpointer:
    def __init__(self, folder):
        self.folder, self.pending = folder, None

    def save(self, state, step):
        self.wait()
        path = os.path.join(self.folder, f"step-{step}")
        self.pending = dcp.async_save(state, storage_writer=SlowMetadataWriter(path))

    def wait(self):
        if self.pending is not None:
            self.pending.result()
            self.pending = None


class CheckpointManager:
    def __init__(self, folder, every):
        self.checkpointer, self.every = AsyncCheckpointer(folder), every

    def maybe_save(self, model, step):
        if step % self.every:
            return
        self.checkpointer.save({"model": model.module.state_dict()}, step)
        if dist.get_rank() == 0:
            time.sleep(1)
        dist.barrier()


def train(model, manager, steps):
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(1, steps):
        optimizer.zero_grad()
        model(torch.randn(8, 16)).mean().backward()
        optimizer.step()
        manager.maybe_save(model, step)


def main():
    dist.init_process_group("gloo")
    folder = os.path.join(tempfile.gettempdir(), "async-ckpt")
    model = DDP(nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 4)))
    train(model, CheckpointManager(folder, every=2), 40)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
