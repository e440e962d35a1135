"""A rank is in an uninterruptible wait.

Real ones come from a network mount or a disk that does not answer, and cannot be made on purpose. Rank 1
stands in for one that reads its data from there: it makes a process with CLONE_VFORK, and until that process
ends, the kernel keeps the rank in the same state D, in which no signal reaches it. Rank 0 waits.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# watch = "--give-up-after 8"
# outcome = "hang"
# cause = "HD404"
# culprits = [1]
# lines = [36]
# code = ["if libc.syscall(CLONE, CLONE_VFORK | signal.SIGCHLD, 0, 0, 0, 0) == 0:"]
# source = "constructed"
# ///

import ctypes
import os
import platform
import signal
import time

import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"
CLONE = {"x86_64": 56, "aarch64": 220}[platform.machine()]
CLONE_VFORK = 0x4000
END_WITH_PARENT = 1

libc = ctypes.CDLL(None)


def read_data(seconds):
    if libc.syscall(CLONE, CLONE_VFORK | signal.SIGCHLD, 0, 0, 0, 0) == 0:
        libc.prctl(END_WITH_PARENT, signal.SIGKILL)
        time.sleep(seconds)
        os._exit(0)


def main():
    dist.init_process_group("gloo")
    if dist.get_rank() == 1:
        read_data(0.5 if FIXED else 60)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
