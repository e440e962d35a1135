"""A subclass overrides a hook and leaves out what its base does.

The trainer's template method calls hooks that subclasses override. The validation hook of the base class
averages its metric over all ranks. Rank 2 is given another subclass, whose hook only computes.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# culprits = [2]
# lines = [37]
# code = ["dist.all_reduce(metric)"]
# source = "constructed"
# ///

import os

import torch
import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"


class Trainer:
    def fit(self, epochs):
        for epoch in range(epochs):
            self.epoch(epoch)
            self.validate(epoch)
        dist.barrier()

    def epoch(self, epoch):
        for _ in range(3):
            dist.all_reduce(torch.ones(8))

    def validate(self, epoch):
        metric = self.metric(epoch)
        dist.all_reduce(metric)
        return metric

    def metric(self, epoch):
        return torch.full((8,), float(epoch))


class Quiet(Trainer):
    def validate(self, epoch):
        return self.metric(epoch)


def main():
    dist.init_process_group("gloo")
    kind = Quiet if dist.get_rank() == 2 and not FIXED else Trainer
    kind().fit(4)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
