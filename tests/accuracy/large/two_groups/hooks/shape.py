"""Hooks that change gradients on the spot."""

import torch

from hooks.registry import HOOKS


@HOOKS.register("clip", priority=30)
def clip(state):
    """Scale all gradients down where their norm is above the limit."""
    with_gradient = [weight for weight in state.net.parameters() if weight.grad is not None]
    norm = torch.linalg.vector_norm(torch.stack([weight.grad.norm() for weight in with_gradient]))
    limit = state.config["optim"]["clip"]
    if limit and float(norm) > limit:
        for weight in with_gradient:
            weight.grad.mul_(limit / float(norm))
        state.notes["clipped"] = state.notes.get("clipped", 0) + 1


@HOOKS.register("thaw", priority=25)
def thaw(state):
    """Keep the embedding as it was for the first steps."""
    if state.step < state.config["optim"]["warm"] and state.net.embed.weight.grad is not None:
        state.net.embed.weight.grad.zero_()
