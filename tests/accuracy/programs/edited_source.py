"""The file is edited after the job started.

The program runs from a copy of itself that is overwritten, with the same code further down, once all ranks
have loaded it. What can be read now are not the lines that run. Rank 1 skips a reduction.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# culprits = [1]
# file = "loop.py"
# lines = [7, 8]
# source = "constructed"
# ///

import os
import runpy
import sys
import tempfile
from pathlib import Path

import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"
PROGRAM = """
import torch
import torch.distributed as dist

def train(rank, fixed):
    for step in range(6):
        if fixed or (rank, step) != (1, 4):
            dist.all_reduce(torch.ones(4))
    dist.barrier()
"""


def main():
    dist.init_process_group("gloo")
    folder = [tempfile.mkdtemp(prefix="edited-source-")]
    dist.broadcast_object_list(folder, src=0)
    path = Path(folder[0]) / "loop.py"
    rank = dist.get_rank()
    if rank == 0:
        path.write_text(PROGRAM)
    dist.barrier()
    loaded = runpy.run_path(str(path))
    dist.barrier()
    if rank == 0:
        path.write_text("# a new header\n" * 5 + PROGRAM)
    dist.barrier()
    loaded["train"](rank, FIXED)
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
