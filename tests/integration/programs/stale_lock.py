"""A build that was killed has left its lock: every rank waits until it is gone, and nobody builds."""

import multiprocessing
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.file_baton import FileBaton


def build(folder):
    baton = FileBaton(str(folder / "lock"))
    if baton.try_acquire():
        (folder / "kernel.so").touch()
        baton.release()
    else:
        baton.wait()


def work(rank, port, folder):
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    dist.all_reduce(torch.ones(1))
    (folder / f"{rank}.waits").touch()
    build(folder)
    dist.all_reduce(torch.ones(1))


if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    ranks = [context.Process(target=work, args=(rank, sys.argv[1], Path(sys.argv[2]))) for rank in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
