"""One rank reduces its loss for the log, asynchronously and alone.

Rank 0 issues one all_reduce more than the others in the step that is logged. The handles are waited for a step later,
and the others' all_reduce of the next step takes part in it: nobody freezes before the loop is over.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# cause = "HD101"
# culprits = [0]
# lines = [33]
# code = ["self.open.append(dist.all_reduce(loss.clone(), async_op=True))"]
# source = "constructed"
# ///

import os

import torch
import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"


class Loop:
    def __init__(self, rank):
        self.rank = rank
        self.open = []

    def step(self, number):
        loss = torch.full((4,), float(number))
        if (self.rank == 0 or FIXED) and number == 3:
            self.open.append(dist.all_reduce(loss.clone(), async_op=True))
        self.open.append(dist.all_reduce(loss, async_op=True))
        while len(self.open) > 2:
            self.open.pop(0).wait()

    def finish(self):
        for handle in self.open:
            handle.wait()


def train(rank):
    loop = Loop(rank)
    for number in range(7):
        loop.step(number)
    loop.finish()
    dist.barrier()


def main():
    dist.init_process_group("gloo")
    train(dist.get_rank())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
