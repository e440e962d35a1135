"""The ranks of this job."""

from __future__ import annotations

import contextlib
import os

import torch
import torch.distributed as dist


class World:
    """Rank and size, and the few decisions that all ranks make together."""

    def __init__(self, rank, size, local):
        self.rank = rank
        self.size = size
        self.local = local

    @classmethod
    @contextlib.contextmanager
    def join(cls):
        if "RANK" not in os.environ:
            yield cls(0, 1, 0)
            return
        dist.init_process_group("gloo")
        try:
            yield cls(dist.get_rank(), dist.get_world_size(), int(os.environ.get("LOCAL_RANK", "0")))
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()

    @property
    def is_main(self):
        return self.rank == 0

    @property
    def alone(self):
        return self.size == 1

    def least(self, number):
        if self.alone:
            return number
        value = torch.tensor([float(number)])
        dist.all_reduce(value, op=dist.ReduceOp.MIN)
        return int(value)

    def any(self, flag):
        """True on all ranks where it is true on one."""
        if self.alone:
            return flag
        vote = torch.tensor([1.0 if flag else 0.0])
        dist.all_reduce(vote, op=dist.ReduceOp.MAX)
        return bool(vote)

    def total(self, values):
        """Sums over the ranks of a 1-D tensor, which is changed in place."""
        if not self.alone:
            dist.all_reduce(values)
        return values

    def same_start(self, module):
        """Every rank begins with the parameters of rank 0."""
        if self.alone:
            return
        for parameter in module.parameters():
            dist.broadcast(parameter.data, src=0)
