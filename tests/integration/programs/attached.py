"""A job that hangs under every launcher: rank 1 calls a barrier that nobody else calls.

Arguments: how to start (environment, spawn, fork, fabric, healthy), a folder for a mark of each rank that is about to
hang, and, where the program starts its own ranks, a port.
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

RANKS = 2


def mark(folder: str, rank: int) -> None:
    Path(folder, f"{rank}.{os.getpid()}").touch()


def train(rank: int, folder: str) -> None:
    for _ in range(3):
        dist.all_reduce(torch.ones(2))
    mark(folder, rank)
    if rank == 1:
        dist.barrier()
    dist.all_reduce(torch.ones(4))


def work(rank: int, port: str, folder: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    train(rank, folder)


def with_environment(folder: str) -> None:
    # Open MPI, MPICH and Slurm have their own names for it.
    for rank, world in (
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PMI_RANK", "PMI_SIZE"),
        ("SLURM_PROCID", "SLURM_NTASKS"),
    ):
        if "RANK" not in os.environ and rank in os.environ:
            os.environ.update(RANK=os.environ[rank], WORLD_SIZE=os.environ[world])
    dist.init_process_group("gloo")
    # A worker that lives on, as with persistent_workers.
    loader = iter(torch.utils.data.DataLoader(list(range(64)), num_workers=1, prefetch_factor=1))
    next(loader)
    train(dist.get_rank(), folder)


def healthy(folder: str) -> None:
    dist.init_process_group("gloo")
    mark(folder, dist.get_rank())
    while True:
        dist.all_reduce(torch.ones(64, 64) @ torch.ones(64, 64))
        time.sleep(0.01)  # it moves for as long as other jobs are looked at


def with_fabric(folder: str) -> None:
    from lightning.fabric import Fabric

    fabric = Fabric(accelerator="cpu", devices=RANKS, strategy="ddp")
    fabric.launch()
    train(fabric.global_rank, folder)


def main() -> None:
    how, folder, *rest = sys.argv[1:]
    if how == "environment":
        with_environment(folder)
    elif how == "healthy":
        healthy(folder)
    elif how == "fabric":
        with_fabric(folder)
    elif how == "spawn":
        mp.spawn(work, args=(rest[0], folder), nprocs=RANKS)
    else:
        context = mp.get_context(how)
        ranks = [context.Process(target=work, args=(rank, rest[0], folder)) for rank in range(RANKS)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()


if __name__ == "__main__":
    main()
