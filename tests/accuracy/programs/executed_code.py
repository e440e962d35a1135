"""Code that exists in no file.

The loop comes from a configuration, as text, and is run with exec. Its frames are in '<string>'. Rank 2
leaves its loop one step early.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# culprits = [2]
# file = "<string>"
# lines = [2, 3, 6]
# source = "constructed"
# ///

import os

import torch
import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"
LOOP = """
for step in range(steps):
    dist.all_reduce(torch.ones(4))
    if step % 2:
        dist.barrier()
dist.all_gather_object([None] * dist.get_world_size(), step)
"""


def main():
    dist.init_process_group("gloo")
    steps = 7 if dist.get_rank() == 2 and not FIXED else 8
    exec(LOOP, {"dist": dist, "torch": torch, "steps": steps})
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
