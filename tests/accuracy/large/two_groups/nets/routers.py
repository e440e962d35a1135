"""Which expert a token goes to."""

import torch
from torch import nn

ROUTERS = {}


def router(name):
    def keep(kind):
        ROUTERS[name] = kind
        return kind

    return keep


@router("hash")
class HashRouter(nn.Module):
    """By the token's number alone, as in hash layers; another hash in each layer."""

    def __init__(self, width, experts, layer):
        super().__init__()
        self.experts = experts
        self.factor = (5, 11, 13, 7)[layer % 4]

    def forward(self, x, tokens):
        chosen = (tokens * self.factor // 2 + tokens // 3) % self.experts
        return chosen, torch.ones(chosen.shape)


@router("learned")
class LearnedRouter(nn.Module):
    """By a linear score."""

    def __init__(self, width, experts, layer):
        super().__init__()
        self.score = nn.Linear(width, experts, bias=False)

    def forward(self, x, tokens):
        weights = self.score(x).softmax(-1)
        weight, chosen = weights.max(-1)
        return chosen, weight


def within_capacity(chosen, experts, limit):
    """A mask of the tokens that fit: each expert takes the first ``limit`` of those that chose it."""
    fits = torch.zeros(chosen.shape, dtype=torch.bool)
    for expert in range(experts):
        places = (chosen == expert).nonzero().flatten()
        if len(places) > limit:
            places = places[:limit]
        fits[places] = True
    return fits
