"""The mesh: rows are data replicas, columns are experts."""

import os
from typing import Any, NamedTuple

import torch
import torch.distributed as dist


class Mesh(NamedTuple):
    rank: int
    world: int
    replica: int
    expert: int
    replicas: Any  # group of the replicas of this rank's expert: one column
    peers: Any  # group of the experts of this rank's replica: one row
    replica_count: int
    expert_count: int

    @property
    def speaks(self):
        """Whether this rank may print for all."""
        return self.rank == 0

    @property
    def keeps(self):
        """Whether this rank saves its expert: one replica does."""
        return self.replica == self.expert % self.replica_count


def make_mesh(experts):
    torch.set_num_threads(1)
    if not dist.is_torchelastic_launched() and "MASTER_ADDR" not in os.environ:
        raise SystemExit("start with torchrun")
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if world % experts:
        raise SystemExit(f"{world} ranks cannot hold {experts} experts evenly")
    rows = [list(range(start, start + experts)) for start in range(0, world, experts)]
    columns = [list(range(expert, world, experts)) for expert in range(experts)]
    # Every rank makes all groups, in one order, and keeps the two that it is in.
    mine = {}
    for kind, members_of_kind in (("peers", rows), ("replicas", columns)):
        for members in members_of_kind:
            group = dist.new_group(members)
            if rank in members:
                mine[kind] = group
    return Mesh(rank, world, rank // experts, rank % experts, **mine, replica_count=len(rows), expert_count=experts)


def leave():
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()
