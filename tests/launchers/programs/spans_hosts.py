"""A job over several hosts: a training loop in which one rank, if told to, makes one barrier too many."""

import sys
import time

import torch
import torch.distributed as dist

MODE, STEPS = sys.argv[1], int(sys.argv[2])
AT = {"hang": 8, "late": 300}


def evaluate(rank: int, step: int) -> None:
    time.sleep(0.05)
    if step == AT.get(MODE) and rank == 3:
        dist.barrier()


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for step in range(STEPS):
        total = torch.ones(8)
        dist.all_reduce(total)
        evaluate(rank, step)
        if step % 20 == 0 and rank % 2 == 0:
            print("step", step, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
