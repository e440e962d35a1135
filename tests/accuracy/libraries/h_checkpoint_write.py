# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = ["torch"]
# watch = "--give-up-after 10"
# outcome = "healthy"
# source = "https://github.com/deepspeedai/DeepSpeed/issues/2993"
# ///
"""Rank 0 writes a large compressed checkpoint for half a minute, piece by piece with fsync; rank 1 waits in the barrier."""
import lzma
import os
import pickle
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Checkpointer:
    def __init__(self, folder):
        self.folder = folder

    def write(self, model, seconds):
        end, part = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            for name, tensor in model.state_dict().items():
                data = lzma.compress(pickle.dumps((part, name, tensor)), preset=6)
                with open(os.path.join(self.folder, f"{part % 4}-{name}.xz"), "wb") as f:
                    f.write(data)
                    f.flush()
                    os.fsync(f.fileno())
            part += 1
        return part


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256)))
    saver = Checkpointer(tempfile.mkdtemp(prefix="ckpt-"))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for step in range(12):
        x = torch.randn(8, 256)
        (model(x) - x).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 5:
            if rank == 0:
                saver.write(model.module, 30)
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
