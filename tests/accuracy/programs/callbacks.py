"""One more callback on one rank.

A trainer runs its callbacks after each step. Rank 0 has one more than the others, which saves a summary: it
gathers the parameters' norms from all ranks, every fifth step.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# culprits = [0]
# lines = [33]
# code = ["dist.all_gather_object(norms, trainer.norm)"]
# source = "constructed"
# ///

import os

import torch
import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"


class Throughput:
    def after_step(self, trainer):
        trainer.steps += 1


class Summary:
    def after_step(self, trainer):
        if trainer.steps % 5 == 0:
            norms = [None] * dist.get_world_size()
            dist.all_gather_object(norms, trainer.norm)


class Trainer:
    def __init__(self, callbacks):
        self.callbacks = callbacks
        self.steps = 0
        self.norm = 0.0

    def step(self):
        gradient = torch.ones(16)
        dist.all_reduce(gradient)
        self.norm = float(gradient.norm())
        for callback in self.callbacks:
            callback.after_step(self)


def main():
    dist.init_process_group("gloo")
    callbacks = [Throughput()]
    if dist.get_rank() == 0 or FIXED:
        callbacks.append(Summary())
    trainer = Trainer(callbacks)
    for _ in range(12):
        trainer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
