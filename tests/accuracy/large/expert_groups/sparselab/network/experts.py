"""The expert of this rank: an adapter around which tokens of others go."""

import torch
from torch import nn


class Adapter(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.down = nn.Linear(width, inner)
        self.up = nn.Linear(inner, width)
        self.strength = nn.Parameter(torch.tensor(0.5))

    def forward(self, hidden):
        return self.strength * self.up(torch.relu(self.down(hidden)))


def apply_adapter(adapter, hidden, taken):
    """``hidden`` with the adapter's change at the places that were routed to it."""
    if not taken.used:
        return hidden
    change = adapter(hidden[taken.chosen])
    places = taken.chosen.unsqueeze(-1).expand_as(hidden)
    return hidden.masked_scatter(places, hidden[taken.chosen] + change)
