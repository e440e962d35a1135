"""Native code waits and keeps the GIL.

Rank 0 calls a function of a C library through ctypes.PyDLL, which does not release the GIL: no other Python
thread of that rank can run meanwhile, be it a logger, a heartbeat or a debugger. Rank 1 waits in the
barrier.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# watch = "--give-up-after 8"
# outcome = "hang"
# cause = "HD506"
# culprits = [0]
# lines = [29]
# code = ["library.sleep(seconds)"]
# source = "constructed"
# ///

import ctypes
import os

import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"


def wait_for_device(seconds):
    library = ctypes.CDLL(None) if FIXED else ctypes.PyDLL(None)
    library.sleep(seconds)


def main():
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        wait_for_device(1 if FIXED else 60)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
