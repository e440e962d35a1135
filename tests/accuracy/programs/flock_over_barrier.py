"""A barrier under flock(2).

As with a lock file, but the kernel itself lets the others wait, and knows who holds the lock.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# cause = "HD504"
# culprits = [0]
# lines = [29]
# code = ["dist.barrier()  # under the lock"]
# source = "constructed"
# ///

import fcntl
import os
import tempfile

import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"


def prepare(path):
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if not FIXED:
            dist.barrier()  # under the lock


def main():
    dist.init_process_group("gloo")
    shared = [tempfile.mkdtemp(prefix="flock-over-barrier-")]
    dist.broadcast_object_list(shared, src=0)
    path = os.path.join(shared[0], "lock")
    if dist.get_rank() == 0:
        prepare(path)
        dist.barrier() if FIXED else None
    else:
        import time

        time.sleep(0.5)
        prepare(path)
        dist.barrier() if FIXED else None
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
