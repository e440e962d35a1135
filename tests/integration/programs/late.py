"""Rank 1 waits for a file before it joins: ``late.py HOW PORT FILE``. Nothing but its stack tells which rank it is."""

import multiprocessing
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

RANKS = 3


def prepare(rank, file):
    while rank == 1 and not os.path.exists(file):
        time.sleep(0.2)


def work(rank, port, file):
    prepare(rank, file)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS)
    dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()


if __name__ == "__main__":
    how, arguments = sys.argv[1], (int(sys.argv[2]), sys.argv[3])
    if how == "process":
        ranks = [multiprocessing.Process(target=work, args=(rank, *arguments)) for rank in range(RANKS)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
    else:
        mp.start_processes(work, arguments, nprocs=RANKS, start_method=how)
