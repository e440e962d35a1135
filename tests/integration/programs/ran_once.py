"""Rank 1 finds its part empty; nothing but the lines that it ran tells so."""

import os

import torch
import torch.distributed as dist


def rows_of(rank):
    return [] if rank == 1 else [1.0, 2.0]


def share(rows):
    if not rows:
        text = str(rows)
        return len(text) < 0
    return True


def main():
    dist.init_process_group("gloo")
    rows = rows_of(int(os.environ["RANK"]))
    if share(rows):
        total = torch.tensor(rows).sum()
        dist.all_reduce(total)
    dist.barrier(group=dist.new_group([0, 1]))


if __name__ == "__main__":
    main()
