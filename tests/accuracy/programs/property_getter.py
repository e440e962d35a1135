"""A property that looks like an attribute is a collective.

`metric.value` averages over all ranks when it is read. Rank 0 reads it once more than the others, to put it
into a log line.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# culprits = [0]
# lines = [36, 49]
# code = ["dist.all_reduce(total)", "print(f\"epoch {epoch}: {metric.value:.2f}\")"]
# source = "constructed"
# ///

import os

import torch
import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"


class Mean:
    def __init__(self):
        self.sum = 0.0
        self.count = 0

    def update(self, value):
        self.sum += value
        self.count += 1

    @property
    def value(self):
        total = torch.tensor([self.sum, float(self.count)])
        dist.all_reduce(total)
        return float(total[0] / total[1])


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    metric = Mean()
    best = 0.0
    for epoch in range(4):
        metric.update(epoch)
        best = max(best, metric.value)
        if rank == 0 and epoch == 2 and not FIXED:
            print(f"epoch {epoch}: {metric.value:.2f}")
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
