"""A rank started by hand: rank 1 is in a barrier where the others are in an all_reduce."""

from datetime import timedelta

import torch
import torch.distributed as dist


def main() -> None:
    """Four calls alike, and then one that is not."""
    dist.init_process_group("gloo", timeout=timedelta(minutes=10))
    for _ in range(4):
        dist.all_reduce(torch.ones(2))
    if dist.get_rank() == 1:
        dist.barrier()
    else:
        dist.all_reduce(torch.ones(2))


main()
