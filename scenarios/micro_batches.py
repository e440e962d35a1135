"""A pipeline stage sends one micro-batch fewer than the next stage expects.

Four stages pass activations on. Stage 1 drops a micro-batch whose activations are all zero (nothing to
learn from it), and stage 2 counts on eight: it waits for the eighth, and stage 3 waits for stage 2. Stages
0 and 1 have done their part and stand in the barrier at the end.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# cause = "HD202"
# culprits = [1]
# lines = [33]
# code = ["dist.recv(activation, src=stage - 1)"]
# source = "constructed"
# ///

import os

import torch
import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"
MICRO_BATCHES = 8


def inputs(stage):
    for number in range(MICRO_BATCHES):
        if stage == 0:
            yield torch.full((16,), float(number != 5))
        else:
            activation = torch.empty(16)
            dist.recv(activation, src=stage - 1)
            yield activation


def run_stage(stage, last):
    for activation in inputs(stage):
        if stage == 1 and not activation.any() and not FIXED:
            continue
        if stage != last:
            dist.send(activation * 2, dst=stage + 1)


def main():
    dist.init_process_group("gloo")
    run_stage(dist.get_rank(), dist.get_world_size() - 1)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
