"""Two outputs from one trunk: the kind of a glyph, and the glyph without noise."""

import torch
from torch import nn

ACTS = {"gelu": nn.GELU, "relu": nn.ReLU, "tanh": nn.Tanh}


class Layer(nn.Module):
    def __init__(self, width, act, norm, drop):
        super().__init__()
        self.norm = nn.LayerNorm(width) if norm else None
        self.one = nn.Linear(width, width)
        self.two = nn.Linear(width, width)
        self.act = ACTS[act]()
        self.drop = drop

    def forward(self, x):
        y = self.norm(x) if self.norm is not None else x
        y = self.act(self.one(y))
        if self.drop and self.training:
            y = nn.functional.dropout(y, self.drop)
        return x + self.two(y)


class GlyphNet(nn.Module):
    def __init__(self, side, kinds, width, depth, act="gelu", norm=True, drop=0.0):
        super().__init__()
        if act not in ACTS:
            raise ValueError(f"{act} is none of {', '.join(ACTS)}")
        self.side = side
        self.read = nn.Linear(side * side, width)
        self.trunk = nn.ModuleList(Layer(width, act, norm, drop) for _ in range(depth))
        self.tell = nn.Linear(width, kinds)
        self.clean = nn.Linear(width, side * side)

    def forward(self, noisy):
        x = self.read(noisy.flatten(1))
        for layer in self.trunk:
            x = layer(x)
        return self.tell(x), torch.sigmoid(self.clean(x)).view(-1, self.side, self.side)


def glyphnet(net, side=8, kinds=4):
    made = GlyphNet(side, kinds, **net)
    for name, p in made.named_parameters():
        if p.dim() == 1 and "norm" not in name:
            nn.init.zeros_(p)
        elif p.dim() == 2 and name.endswith("two.weight"):
            nn.init.normal_(p, std=0.02)
    return made
