"""A barrier inside a file lock.

Every rank prepares the cache under a lock file, so that one of them does the work and the others find it
done. Whoever gets the lock first waits for the others in a barrier before it lets go, and they wait for the
lock.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# watch = "--give-up-after 8"
# outcome = "hang"
# cause = "HD504"
# lines = [29, 34]
# code = ["with FileLock(folder / \"cache.lock\"):", "dist.barrier()  # the cache is complete"]
# source = "constructed"
# ///

import os
import tempfile
from pathlib import Path

import torch.distributed as dist
from filelock import FileLock

FIXED = os.environ.get("FIXED") == "1"


def prepare(folder):
    with FileLock(folder / "cache.lock"):
        done = folder / "cache.done"
        if not done.exists():
            done.touch()
        if not FIXED:
            dist.barrier()  # the cache is complete


def main():
    dist.init_process_group("gloo")
    shared = [tempfile.mkdtemp(prefix="barrier-under-lock-")]
    dist.broadcast_object_list(shared, src=0)
    prepare(Path(shared[0]))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
