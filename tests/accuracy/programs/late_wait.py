"""An asynchronous all_reduce, and a wait that comes much later.

The statistics of a step are reduced while the next step computes, and waited for at its end. Rank 1 has nothing to
report in one step and issues no reduction. The others freeze far below, in the last wait, rank 1 in the barrier
behind it.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# cause = "HD101"
# culprits = [1]
# lines = [32]
# code = ["self.pending.append(dist.all_reduce(numbers, async_op=True))"]
# source = "constructed"
# ///

import os

import torch
import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"


class Statistics:
    def __init__(self):
        self.pending = []

    def share(self, numbers):
        if numbers.any() or FIXED:
            self.pending.append(dist.all_reduce(numbers, async_op=True))

    def finish(self, keep):
        while len(self.pending) > keep:
            self.pending.pop(0).wait()


def train(rank):
    statistics = Statistics()
    for step in range(8):
        clipped = torch.full((4,), float(step + 1))
        if rank == 1 and step == 3:
            clipped.zero_()
        statistics.share(clipped)
        gradient = torch.ones(16)
        gradient *= step
        statistics.finish(keep=1)
    statistics.finish(keep=0)
    dist.barrier()


def main():
    dist.init_process_group("gloo")
    train(dist.get_rank())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
