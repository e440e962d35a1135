"""A rank waits for a program that waits for its input.

Rank 0 unpacks its data with a command. The command reads the archive from its standard input, which nobody
gave it: it inherits a pipe that stays open and empty. Rank 0 waits for the command, rank 1 for rank 0.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# watch = "--give-up-after 8"
# outcome = "hang"
# cause = "HD509"
# culprits = [0]
# lines = [27]
# code = ["subprocess.run([\"cat\"], stdin=source, stdout=subprocess.DEVNULL, check=True)"]
# source = "constructed"
# ///

import os
import subprocess

import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"


def unpack(source):
    subprocess.run(["cat"], stdin=source, stdout=subprocess.DEVNULL, check=True)


def main():
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        archive, other_end = os.pipe()
        if FIXED:
            os.close(other_end)
        unpack(archive)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
