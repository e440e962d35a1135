"""Handles that a thread of its own waits for, while the main thread goes on.

The main thread issues the calls and hands their handles to a thread, which waits for them and writes the statistics
down. Rank 2 leaves one call out. The others' main threads stand in the end at the join of the thread.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# cause = "HD101"
# culprits = [2]
# lines = [47]
# code = ["writer.handles.put(dist.all_reduce(numbers, async_op=True))"]
# source = "constructed"
# ///

import os
import queue
import threading

import torch
import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"


class Writer:
    def __init__(self):
        self.handles = queue.Queue()
        self.thread = threading.Thread(target=self.run, name="writer")
        self.thread.start()

    def run(self):
        while (handle := self.handles.get()) is not None:
            handle.wait()

    def finish(self):
        self.handles.put(None)
        self.thread.join()


def train(rank):
    writer = Writer()
    for step in range(6):
        numbers = torch.full((4,), float(step))
        if rank != 2 or step != 3 or FIXED:
            writer.handles.put(dist.all_reduce(numbers, async_op=True))
        torch.ones(64).sum()
    writer.finish()
    dist.barrier()


def main():
    dist.init_process_group("gloo")
    train(dist.get_rank())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
