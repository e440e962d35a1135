"""Averages of gradients, one flat buffer for each set of parameters."""

import torch
import torch.distributed as dist


def average(parameters, group, members, fill=False):
    """Average the gradients over a group of ``members`` ranks, in place. Returns how many numbers were exchanged.

    ``fill``: a parameter without a gradient takes part with zeros.
    """
    if fill:
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not gradients:
        return 0
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
    dist.all_reduce(flat, group=group)
    flat /= members
    start = 0
    for gradient in gradients:
        gradient.copy_(flat[start : start + gradient.numel()].view_as(gradient))
        start += gradient.numel()
    return flat.numel()


def average_all(state, mesh, options):
    """The expert's gradients over its replicas, then the dense ones over the world."""
    exchanged = average(state.sparse, mesh.replicas, mesh.replica_count, fill=options["fill_gradients"])
    exchanged += average(state.dense, None, mesh.world)
    return exchanged


def norm_of(parameters):
    squares = [float(parameter.grad.pow(2).sum()) for parameter in parameters if parameter.grad is not None]
    return sum(squares) ** 0.5 if squares else 0.0


def clip(parameters, limit):
    """Scale to the norm ``limit``; whether that was needed."""
    norm = norm_of(parameters)
    if limit is None or norm <= limit or norm == 0:
        return False
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad.mul_(limit / norm)
    return True
