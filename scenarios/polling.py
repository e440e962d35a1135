"""A rank waits for a file under another name.

Rank 0 downloads the data and marks the end with a file; the other rank polls until the file is there. They
do not agree on its name. Rank 0 waits in the barrier, rank 1 sleeps and looks again, for ever. Since it
might end at any moment, it is called slow at first and a hang only after --give-up-after.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# watch = "--give-up-after 8"
# outcome = "hang"
# cause = "HD508"
# culprits = [1]
# lines = [30, 31]
# code = ["while not marker.exists():", "time.sleep(0.2)"]
# source = "constructed"
# ///

import os
import tempfile
import time
from pathlib import Path

import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"


def wait_for(marker):
    while not marker.exists():
        time.sleep(0.2)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    shared = [tempfile.mkdtemp(prefix="polling-") if rank == 0 else None]
    dist.broadcast_object_list(shared, src=0)
    folder = Path(shared[0])
    if rank == 0:
        (folder / "download.done").touch()
    else:
        wait_for(folder / ("download.done" if FIXED else "download-done"))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
