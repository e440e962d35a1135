"""A rank cannot end: a thread that is not a daemon still waits.

All ranks finish their work. Rank 1 has an uploader thread that waits for the next file, and nobody tells it
that there is none: the interpreter waits for the thread before it exits, and torchrun for rank 1.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# watch = "--give-up-after 8"
# outcome = "hang"
# cause = "HD701"
# culprits = [1]
# lines = [31]
# code = ["path = files.get()"]
# source = "constructed"
# ///

import os
import queue
import threading
import time

import torch
import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"


def upload(files):
    while True:
        path = files.get()
        if path is None:
            return


def main():
    dist.init_process_group("gloo")
    files = queue.Queue()
    if dist.get_rank() == 1:
        threading.Thread(target=upload, args=(files,), name="uploader").start()
    for step in range(8):
        time.sleep(0.3)
        dist.all_reduce(torch.ones(4))
        files.put(f"step-{step}")
    if FIXED:
        files.put(None)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
