"""A rank without data returns before it joins.

There are five files for three ranks, and each takes every third from its own offset on. A filter leaves
rank 1 with none, so it prints a line and returns with status 0, before init_process_group. torchrun sees a
worker that finished well; the two others wait for it in init_process_group.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# cause = "HD401"
# culprits = [1]
# lines = [37]
# code = ["dist.init_process_group(\"gloo\")"]
# source = "constructed"
# ///

import os

import torch
import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"
FILES = ["a-train.txt", "b-test.txt", "c-train.txt", "d-train.txt", "e-test.txt"]


def shard(rank, world_size):
    return [name for name in FILES[rank::world_size] if "train" in name]


def main():
    rank = int(os.environ["RANK"])
    files = shard(rank, int(os.environ["WORLD_SIZE"]))
    if not files and not FIXED:
        print(f"rank {rank}: nothing to do")
        return
    dist.init_process_group("gloo")
    count = torch.tensor([len(files)])
    dist.all_reduce(count)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
