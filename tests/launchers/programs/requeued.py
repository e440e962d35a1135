"""Hangs where it runs for the first time, rank 1 with one call too many; where Slurm runs it again, it ends."""

import os

import torch
import torch.distributed as dist


def evaluate(rank: int) -> None:
    if rank == 1 and os.environ.get("SLURM_RESTART_COUNT", "0") == "0":
        dist.barrier()


def main() -> None:
    rank = int(os.environ["SLURM_PROCID"])
    dist.init_process_group("gloo", rank=rank, world_size=int(os.environ["SLURM_NTASKS"]))
    for step in range(40):
        dist.all_reduce(torch.ones(8))
        if step == 30:
            evaluate(rank)
    dist.destroy_process_group()
    print(f"rank {rank} is through\n", end="", flush=True)


if __name__ == "__main__":
    main()
