"""Weights of the classifier: a table of tensors, and what is done with them."""

import math

import torch


def start(width, hidden, kinds, seed):
    """The same on all ranks, since the seed is."""
    source = torch.Generator().manual_seed(seed)
    inner = hidden if hidden > 0 else width
    weights = {"out": torch.randn(inner, kinds, generator=source) / math.sqrt(inner), "bias": torch.zeros(kinds)}
    if hidden > 0:
        weights["in"] = torch.randn(width, hidden, generator=source) / math.sqrt(width)
        weights["in_bias"] = torch.zeros(hidden)
    return {name: each.requires_grad_() for name, each in sorted(weights.items())}


def logits(weights, rows):
    if "in" in weights:
        rows = torch.tanh(rows @ weights["in"] + weights["in_bias"])
    return rows @ weights["out"] + weights["bias"]


def slide(average, weights, keep):
    """An average over the last steps, in place."""
    for name, each in weights.items():
        if name in average:
            average[name].mul_(keep).add_(each.detach(), alpha=1 - keep)
        else:
            average[name] = each.detach().clone()
    return average


def step(weights, rate, decay):
    with torch.no_grad():
        for name, each in weights.items():
            if each.grad is None:
                continue
            if decay and "bias" not in name:
                each.mul_(1 - rate * decay)
            each.sub_(rate * each.grad)
            each.grad = None
