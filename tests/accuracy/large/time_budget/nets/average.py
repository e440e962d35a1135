"""A running average of the weights."""

import copy
from contextlib import contextmanager

import torch


class Average:
    def __init__(self, net, decay):
        self.net = copy.deepcopy(net).eval()
        self.decay = decay
        self.updates = 0
        for p in self.net.parameters():
            p.requires_grad_(False)

    @torch.no_grad()
    def update(self, net):
        self.updates += 1
        decay = min(self.decay, self.updates / (self.updates + 3))
        for mine, new in zip(self.net.parameters(), net.parameters(), strict=True):
            mine.mul_(decay).add_(new, alpha=1 - decay)
        return decay


@contextmanager
def evaluated(net, average, wanted):
    """The network to evaluate, in evaluation mode."""
    if average is not None and wanted and average.updates > 0:
        yield average.net
        return
    before = net.training
    net.eval()
    try:
        yield net
    finally:
        if before:
            net.train()
