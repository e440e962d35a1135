# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# watch = "--give-up-after 10"
# outcome = "healthy"
# source = "https://github.com/pytorch/pytorch/issues/45089"
# ///
"""Rank 0 waits for a subprocess that computes for half a minute (an external tokenizer), the others wait for a key in the store and in a barrier."""
import subprocess
import sys

import torch
import torch.distributed as dist

TOOL = "import time\nend = time.monotonic() + 28\nwhile time.monotonic() < end: sum(range(1000))"


class Tool:
    def run(self):
        return subprocess.run([sys.executable, "-S", "-c", TOOL], check=True, capture_output=True)


def main():
    dist.init_process_group("gloo")
    store, rank = dist.distributed_c10d._get_default_store(), dist.get_rank()
    if rank == 0:
        Tool().run()
        store.set("tool/done", "1")
    if rank == 1:
        store.wait(["tool/done"])
    dist.barrier()
    dist.all_reduce(torch.ones(3))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
