"""A job of two ranks that meet in a file, as no store of theirs could: rank 1 makes one barrier too many.

Argument: a folder that both hosts share.
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

FOLDER = Path(sys.argv[1])
RANK = int(os.environ.get("RANK") or os.environ["SLURM_PROCID"])


def main() -> None:
    dist.init_process_group("gloo", init_method=f"file://{FOLDER}/store", rank=RANK, world_size=2)
    while True:
        go = torch.tensor([0 if (FOLDER / "hang").exists() else 1])
        dist.all_reduce(go)
        time.sleep(0.02)
        if go < 2 and RANK == 1:
            dist.barrier()


if __name__ == "__main__":
    main()
