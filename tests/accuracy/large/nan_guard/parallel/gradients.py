"""Averaging of gradients in buckets, the last layers first."""

from __future__ import annotations

import torch
import torch.distributed as dist


class GradientAverager:
    """Packs the gradients of a module in flat buckets of about ``bucket_bytes`` and averages each."""

    def __init__(self, module, bucket_bytes, world):
        self.world = world
        self.buckets = pack(reversed([each for each in module.parameters() if each.requires_grad]), bucket_bytes)
        self.rounds = 0

    def average(self):
        if self.world.alone:
            return
        for bucket in self.buckets:
            flat = torch.cat([self.of(parameter).flatten() for parameter in bucket])
            dist.all_reduce(flat)
            flat /= self.world.size
            at = 0
            for parameter in bucket:
                size = parameter.numel()
                piece = flat[at : at + size].view_as(parameter)
                if parameter.grad is None:
                    parameter.grad = piece.clone()
                else:
                    parameter.grad.copy_(piece)
                at += size
        self.rounds += 1

    @staticmethod
    def of(parameter):
        return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


def pack(parameters, limit):
    """Lists of parameters, none of which has more than ``limit`` bytes unless one alone has."""
    buckets, current, held = [], [], 0
    for parameter in parameters:
        size = parameter.numel() * parameter.element_size()
        if current and held + size > limit:
            buckets.append(current)
            current, held = [], 0
        current.append(parameter)
        held += size
    if current:
        buckets.append(current)
    return buckets
