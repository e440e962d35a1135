"""Nothing hangs: one rank has more to do.

Rank 1 counts words for many seconds while the other rank waits in the barrier. No collective moves, but the
rank computes, and the job ends by itself: slow, not hung.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# outcome = "slow"
# cause = "HD501"
# culprits = [1]
# lines = [29, 30, 31]
# code = ["while time.monotonic() < end:", "for word in TEXT:", "counts[word] = counts.get(word, 0) + 1"]
# source = "constructed"
# ///

import os
import time

import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"
TEXT = ["all", "work", "and", "no", "play"] * 2000


def count_words(seconds):
    counts = {}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for word in TEXT:
            counts[word] = counts.get(word, 0) + 1
    return counts


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    dist.barrier()
    count_words(10 if rank == 1 and not FIXED else 0.5)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
