"""Hooks that average gradients."""

import torch
import torch.distributed as dist

from hooks.registry import HOOKS


def average(weights, group):
    """Average the gradients of the weights over the group, in one flat piece."""
    pieces = [torch.zeros_like(each) if each.grad is None else each.grad for each in weights]
    if not pieces:
        return
    flat = torch.cat([piece.flatten() for piece in pieces])
    dist.all_reduce(flat, group=group)
    flat /= dist.get_world_size(group)
    for weight, mean in zip(weights, flat.split([piece.numel() for piece in pieces]), strict=True):
        weight.grad = mean.view_as(weight).clone()


def expert_bytes(state):
    """Bytes of the experts that had a token: the others' gradients are zeros."""
    total = 0
    for layer in state.net.layers:
        experts = layer.experts
        each = (experts.up[0].numel() + experts.down[0].numel()) * experts.up.element_size()
        total += sum(each for used in experts.used if used)
    return total


def dense_bytes(state):
    return sum(weight.numel() * weight.element_size() for weight in state.net.dense_weights() if weight.requires_grad)


@HOOKS.register("experts", priority=10, payload=expert_bytes)
def average_experts(state):
    average(state.net.expert_weights(), state.groups.expert)


@HOOKS.register("dense", priority=20, payload=dense_bytes)
def average_dense(state):
    average(state.net.dense_weights(), state.groups.world)
