"""A pipe that nobody reads fills up.

Rank 1 starts a filter and writes its samples into it. The filter answers each line, and nobody reads the
answers: first the filter stops, its output being full, then rank 1, whose output nobody takes.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# watch = "--give-up-after 8"
# outcome = "hang"
# culprits = [1]
# lines = [29]
# code = ["pipe.stdin.write(line)"]
# source = "constructed"
# ///

import os
import subprocess

import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"


def clean(lines):
    output = subprocess.DEVNULL if FIXED else subprocess.PIPE
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=output) as pipe:
        for line in lines:
            pipe.stdin.write(line)


def main():
    dist.init_process_group("gloo")
    if dist.get_rank() == 1:
        clean(b"a sample\n" * 100 for _ in range(1000))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
