"""Numbers that several ranks share."""

import torch
import torch.distributed as dist


def mean_over(value, group, members):
    total = torch.tensor(float(value), dtype=torch.float64)
    dist.all_reduce(total, group=group)
    return float(total) / members


def worst_of_all(value):
    worst = torch.tensor(float(value), dtype=torch.float64)
    dist.all_reduce(worst, op=dist.ReduceOp.MAX)
    return float(worst)


def table_of(values, group, members):
    """[members, values]: what each member of the group has."""
    own = torch.tensor([float(value) for value in values])
    rows = [torch.empty_like(own) for _ in range(members)]
    dist.all_gather(rows, own, group=group)
    return torch.stack(rows)
