"""A small mixture of experts over tokens."""

import math

import torch
from torch import nn
from torch.nn import functional

from nets.routers import ROUTERS, within_capacity


class Experts(nn.Module):
    """``experts`` small networks, one of which works on each token."""

    def __init__(self, config, layer):
        super().__init__()
        width, hidden = config["width"], config["hidden"]
        self.count = config["experts"]
        self.capacity = config["capacity"]
        self.route = ROUTERS[config["router"]](width, self.count, layer)
        self.up = nn.Parameter(torch.randn(self.count, width, hidden) / math.sqrt(width))
        self.down = nn.Parameter(torch.zeros(self.count, hidden, width))
        self.used = [0] * self.count
        self.dropped = 0

    def forward(self, x, tokens):
        chosen, weight = self.route(x, tokens)
        limit = math.ceil(self.capacity * len(tokens) / self.count)
        fits = within_capacity(chosen, self.count, limit)
        if self.training:
            self.dropped += int((~fits).sum())
        out = torch.zeros_like(x)
        for expert in range(self.count):
            mine = (fits & (chosen == expert)).nonzero().flatten()
            if not len(mine):
                continue
            hidden = functional.gelu(x[mine] @ self.up[expert])
            out = out.index_add(0, mine, (hidden @ self.down[expert]) * weight[mine, None])
            if self.training:
                self.used[expert] += len(mine)
        return out

    def take_used(self):
        """How many tokens each expert has had since the last call."""
        used, self.used = self.used, [0] * self.count
        return used


class Layer(nn.Module):
    """Neighbours mix, then experts work."""

    def __init__(self, config, layer):
        super().__init__()
        width = config["width"]
        self.mix = nn.Conv1d(width, width, 3, padding=1, groups=width if layer % 2 else 1)
        self.norm = nn.LayerNorm(width)
        self.experts = Experts(config, layer)

    def forward(self, x, tokens):
        x = x + self.mix(x.transpose(1, 2)).transpose(1, 2)
        flat = self.norm(x).flatten(0, 1)
        return x + self.experts(flat, tokens.flatten()).view_as(x)


class Mixture(nn.Module):
    """Tokens (batch, length) to logits (batch, length, vocab)."""

    def __init__(self, config):
        super().__init__()
        self.embed = nn.Embedding(config["vocab"], config["width"], padding_idx=0)
        self.layers = nn.ModuleList(Layer(config, number) for number in range(config["layers"]))
        self.norm = nn.LayerNorm(config["width"])
        self.head = None if config["tie"] else nn.Linear(config["width"], config["vocab"], bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, tokens)
        x = self.norm(x)
        return x @ self.embed.weight.T if self.head is None else self.head(x)

    def expert_weights(self):
        return [weight for name, weight in self.named_parameters() if ".experts.up" in name or ".experts.down" in name]

    def dense_weights(self):
        own = {id(weight) for weight in self.expert_weights()}
        return [weight for weight in self.parameters() if id(weight) not in own]


def build_net(config):
    net = Mixture(config)
    for name, weight in net.named_parameters():
        if name.startswith("embed"):
            nn.init.normal_(weight, std=0.3)
        elif weight.dim() == 1 and "bias" in name:
            nn.init.zeros_(weight)
    return net
