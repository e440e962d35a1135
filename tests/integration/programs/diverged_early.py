"""Rank 1 averages once too often at the start; both averages have one size, so the job goes on until its end."""

import os
import time

import torch
import torch.distributed as dist

STEPS = 320


def gradients(value):
    dist.all_reduce(value)


def metrics(value):
    dist.all_reduce(value)


def main():
    dist.init_process_group("gloo")
    rank, value = dist.get_rank(), torch.ones(4)
    for step in range(STEPS):
        gradients(value)
        if step == 3 and rank == 1 and os.environ.get("FIXED") != "1":
            metrics(value)
        metrics(value)
        time.sleep(0.05)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
