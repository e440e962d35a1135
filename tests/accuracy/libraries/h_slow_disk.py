# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "healthy"
# source = "https://github.com/facebookresearch/d2go/pull/621"
# ///
"""Rank 0 writes a checkpoint in small pieces to a throttled disk with fsync after each; the others wait for the path it broadcasts."""
import os
import tempfile
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn


@dataclass
class Disk:
    chunk: int = 1 << 16
    pause: float = 0.4


class ThrottledWriter:
    def __init__(self, path, disk):
        self.path, self.disk = path, disk

    def write(self, payload):
        with open(self.path, "wb") as f:
            for start in range(0, len(payload), self.disk.chunk):
                f.write(payload[start : start + self.disk.chunk])
                f.flush()
                os.fsync(f.fileno())
                time.sleep(self.disk.pause)


class Checkpoint:
    def __init__(self, model):
        self.model, self.disk = model, Disk()

    def save(self):
        path = [None]
        if dist.get_rank() == 0:
            path[0] = os.path.join(tempfile.mkdtemp(), "model.bin")
            ThrottledWriter(path[0], self.disk).write(os.urandom(70 * self.disk.chunk))
        dist.broadcast_object_list(path, src=0)
        return path[0]


def main():
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(nn.Linear(8, 8))
    for step in range(6):
        model(torch.randn(2, 8)).sum().backward()
        if step == 3:
            Checkpoint(model).save()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
