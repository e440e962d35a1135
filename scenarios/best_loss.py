"""Every rank decides for itself whether the loss got better.

Each of three ranks validates on its own part of the data. When the loss improves, the trainer saves a
checkpoint, and far below (Trainer.epoch, Trainer.validate, Checkpoint.save, Checkpoint.consolidate) that
gathers every rank's part of the optimizer. In the fifth epoch only rank 1 improves, so rank 1 alone gathers
while the others go on to the next epoch.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# cause = "HD101"
# culprits = [1]
# lines = [38, 55]
# code = ["dist.all_gather(parts, state)", "if loss < self.best:"]
# source = "https://github.com/vllm-project/speculators/pull/324"
# ///

import os

import torch
import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"
LOSSES = [
    [4.0, 3.0, 2.5, 2.0, 2.1, 1.5],
    [4.1, 3.2, 2.4, 2.1, 1.9, 1.4],
    [3.9, 3.1, 2.6, 2.2, 2.3, 1.6],
]


class Checkpoint:
    def __init__(self):
        self.epoch = None

    def consolidate(self, state):
        parts = [torch.empty_like(state) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, state)
        return torch.cat(parts)

    def save(self, epoch, state):
        self.epoch = epoch
        return self.consolidate(state)


class Trainer:
    def __init__(self, rank):
        self.rank = rank
        self.best = float("inf")
        self.weights = torch.ones(8)
        self.checkpoint = Checkpoint()

    def validate(self, epoch):
        loss = self.global_loss(epoch) if FIXED else LOSSES[self.rank][epoch]
        if loss < self.best:
            self.best = loss
            self.checkpoint.save(epoch, self.weights)

    def global_loss(self, epoch):
        loss = torch.tensor(LOSSES[self.rank][epoch])
        dist.all_reduce(loss)
        return float(loss) / dist.get_world_size()

    def epoch(self, epoch):
        for _ in range(3):
            gradient = self.weights * 0.01
            dist.all_reduce(gradient)
            self.weights -= gradient
        self.validate(epoch)


def main():
    dist.init_process_group("gloo")
    trainer = Trainer(dist.get_rank())
    for epoch in range(len(LOSSES[0])):
        trainer.epoch(epoch)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
