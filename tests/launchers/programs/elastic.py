"""A training loop that may be started anew: where the folder has a file hang-SIZE, the last of SIZE ranks takes it away
and makes one barrier too many."""

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

FOLDER, STEPS = Path(sys.argv[1]), int(sys.argv[2])


def evaluate(rank: int, size: int) -> None:
    time.sleep(0.05)
    told = FOLDER / f"hang-{size}"
    if rank == size - 1 and told.exists():
        told.unlink()
        dist.barrier()


def main() -> None:
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    for step in range(STEPS):
        total = torch.ones(8)
        dist.all_reduce(total)
        if step >= 40:
            evaluate(rank, size)
        time.sleep(0.02)
        if step % 20 == 0:
            print(f"rank {rank} of {size} at step {step}\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
