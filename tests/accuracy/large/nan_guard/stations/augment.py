"""Small changes of a context, drawn by each rank for itself."""

from __future__ import annotations

import torch


class Augmenter:
    """Noise, a lost channel, a record that runs an hour late."""

    def __init__(self, settings, source):
        self.jitter = settings.jitter
        self.drop_channel = settings.drop_channel
        self.source = source
        self.counts = {"noise": 0, "channel": 0, "late": 0}

    def chance(self):
        return float(torch.rand((), generator=self.source))

    def __call__(self, context):
        if self.jitter > 0.0 and self.chance() < 0.5:
            noise = torch.randn(context.shape, generator=self.source)
            context = context + self.jitter * noise
            self.counts["noise"] += 1
        if self.chance() < self.drop_channel and context.shape[1] > 1:
            lost = int(torch.randint(0, context.shape[1], (), generator=self.source))
            context = context.clone()
            context[:, lost] = 0.0
            self.counts["channel"] += 1
        elif self.chance() < 0.1:
            context = torch.cat([context[:1], context[:-1]])
            self.counts["late"] += 1
        return context
