"""Rank 0 clears the folder of the run, and with it the rendezvous file in which the other rank already waits."""

import multiprocessing
import shutil
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist


def prepare(rank, folder):
    if rank == 0:
        while not (folder / "run" / "rendezvous").exists():
            time.sleep(0.1)
        time.sleep(1.0)
        shutil.rmtree(folder / "run")
    (folder / "run").mkdir(exist_ok=True)


def work(rank, folder):
    prepare(rank, folder)
    (folder / f"{rank}.waits").touch()
    rendezvous = folder / "run" / "rendezvous"
    dist.init_process_group("gloo", init_method=rendezvous.as_uri(), rank=rank, world_size=2)
    dist.all_reduce(torch.ones(1))


if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    ranks = [context.Process(target=work, args=(rank, Path(sys.argv[2]))) for rank in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
