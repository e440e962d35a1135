"""A mesh of ranks: rows share experts, and all of them share the dense weights."""

import os
from collections import namedtuple

import torch.distributed as dist

Groups = namedtuple("Groups", "rank size row expert world expert_ranks")


def rows_of(size, ways):
    """Consecutive ranks in rows of ``ways``; the last row may be shorter."""
    if ways > size:
        return [list(range(size))]
    rows = [list(range(start, min(start + ways, size))) for start in range(0, size, ways)]
    if len(rows) > 1 and len(rows[-1]) == 1:
        # A row of one would have nobody to average with.
        rows[-2] += rows.pop()
    return rows


def open_groups(config):
    if "WORLD_SIZE" not in os.environ:
        raise SystemExit("start this with torchrun")
    dist.init_process_group(config["backend"])
    rank, size = dist.get_rank(), dist.get_world_size()
    mine = None
    for number, row in enumerate(rows_of(size, config["expert_ways"])):
        group = dist.new_group(row)
        if rank in row:
            mine = (number, group, row)
    number, group, row = mine
    return Groups(rank, size, number, group, dist.group.WORLD, row)


def close_groups(groups):
    if not dist.is_initialized():
        return
    if groups.expert is not None and len(groups.expert_ranks) < groups.size:
        dist.destroy_process_group(groups.expert)
    dist.destroy_process_group()
