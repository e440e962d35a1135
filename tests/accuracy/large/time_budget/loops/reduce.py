"""Gradients of all ranks in buckets."""

import torch
import torch.distributed as dist


def broadcast_start(net):
    """All begin with the first rank's weights."""
    for p in net.parameters():
        dist.broadcast(p.data, src=0)


def buckets(params, limit):
    """Neighbors together until ``limit`` numbers are reached."""
    full, size = [], 0
    for p in params:
        if full and size + p.numel() > limit:
            yield full
            full, size = [], 0
        full.append(p)
        size += p.numel()
    if full:
        yield full


def mean_grads(net, world, limit, half):
    """In place. Returns the norm of what this rank had."""
    params = [p for p in net.parameters() if p.requires_grad]
    square = 0.0
    for bucket in buckets(reversed(params), limit):
        grads = [p.grad if p.grad is not None else torch.zeros_like(p) for p in bucket]
        flat = torch.cat([g.reshape(-1) for g in grads])
        square += float(flat.pow(2).sum())
        if half:
            flat = flat.bfloat16()
        dist.all_reduce(flat)
        flat = flat.float() / world
        for p, part in zip(bucket, flat.split([p.numel() for p in bucket]), strict=True):
            p.grad = part.view_as(p)
    return square**0.5


def mean_of(values):
    """Means over the ranks of a few numbers."""
    t = torch.tensor([float(v) for v in values], dtype=torch.float64)
    dist.all_reduce(t)
    return (t / dist.get_world_size()).tolist()
