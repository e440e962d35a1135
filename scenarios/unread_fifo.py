"""A rank opens a named pipe, and nobody opens the other end.

Rank 1 hands its statistics to a monitoring program through a FIFO. Opening it for writing waits until
somebody reads, and the monitor is not running. The other rank waits in the barrier.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# watch = "--give-up-after 8"
# outcome = "hang"
# cause = "HD507"
# culprits = [1]
# lines = [29]
# code = ["with open(path, \"w\") as monitor:"]
# source = "constructed"
# ///

import os
import tempfile

import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"


def report(path, steps):
    if FIXED and not os.path.exists(path):
        return
    with open(path, "w") as monitor:
        monitor.write(f"{steps} steps\n")


def main():
    dist.init_process_group("gloo")
    if dist.get_rank() == 1:
        path = os.path.join(tempfile.mkdtemp(prefix="unread-fifo-"), "monitor")
        if not FIXED:
            os.mkfifo(path)
        report(path, 100)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
