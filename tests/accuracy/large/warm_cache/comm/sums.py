"""Sums over ranks."""

import torch
import torch.distributed as dist


def total(values, size):
    """Element-wise sums of a list of numbers."""
    if size == 1:
        return list(values)
    tensor = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(tensor)
    return tensor.tolist()


def mean_of(tensors, size):
    """Replace each tensor by its mean over the ranks; one message for all."""
    if size == 1 or not tensors:
        return
    flat = torch.cat([each.reshape(-1) for each in tensors])
    dist.all_reduce(flat)
    flat /= size
    start = 0
    for each in tensors:
        end = start + each.numel()
        each.copy_(flat[start:end].view_as(each))
        start = end


def most(number, size):
    if size == 1:
        return number
    tensor = torch.tensor([number])
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    return int(tensor)
