"""Dense parts of the network."""

import torch
from torch import nn


class CausalMean(nn.Module):
    """Each place sees the mean of what stands before it, in place of attention."""

    def __init__(self, width):
        super().__init__()
        self.gate = nn.Linear(2 * width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, hidden, present):
        weights = present.unsqueeze(-1).float()
        total = (hidden * weights).cumsum(dim=1)
        count = weights.cumsum(dim=1).clamp(min=1)
        context = total / count
        gate = torch.sigmoid(self.gate(torch.cat((hidden, context), dim=-1)))
        return self.norm(gate * hidden + (1 - gate) * context)


class DenseBlock(nn.Module):
    def __init__(self, width, last):
        super().__init__()
        self.mix = CausalMean(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.scale = 0.5 if last else 1.0

    def forward(self, hidden, present):
        hidden = self.mix(hidden, present)
        return hidden + self.scale * self.down(torch.tanh(self.up(hidden)))
