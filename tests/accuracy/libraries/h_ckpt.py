# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# watch = "--give-up-after 10"
# outcome = "healthy"
# source = "https://github.com/modelscope/ms-swift/issues/9188"
# ///
"""Rank 0 writes a checkpoint in many shards through a slow writer for half a minute, as to a slow disk; the other waits in a barrier."""
import io
import os
import tempfile
import time

import torch
import torch.distributed as dist


class SlowDisk:
    def __init__(self, path):
        self.file = open(path, "wb")

    def write(self, data):
        for start in range(0, len(data), 1 << 16):
            self.file.write(data[start:start + (1 << 16)])
            self.file.flush()
            os.fsync(self.file.fileno())
            time.sleep(0.08)


def save(shards):
    for i in range(shards):
        buffer = io.BytesIO()
        torch.save({"w": torch.randn(1 << 18)}, buffer)
        disk = SlowDisk(os.path.join(tempfile.gettempdir(), f"shard{i}"))
        disk.write(buffer.getvalue())


def main():
    dist.init_process_group("gloo")
    for _ in range(3):
        dist.all_reduce(torch.ones(4))
    if dist.get_rank() == 0:
        save(20)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
