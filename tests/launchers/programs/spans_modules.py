"""A job over several hosts: rank 3 alone leaves the others, by a rule of a module that only its host imports."""

import importlib

import spans_parts.names
import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    rules = importlib.import_module("spans_parts.rules") if rank == 3 else None
    spans_parts.names.announce(rank)
    for step in range(100_000):
        dist.all_reduce(torch.ones(8))
        if rules is not None and rules.is_over(step):
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
