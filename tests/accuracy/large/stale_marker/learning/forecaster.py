"""The network: a recurrent encoder and one output for each step ahead."""

from __future__ import annotations

import torch
from torch import nn

from settings.ini import Configuration, ConfigurationError

CELLS: dict[str, type[nn.Module]] = {}


def cell(name: str):
    """Registers a kind of cell."""

    def register(kind: type[nn.Module]) -> type[nn.Module]:
        if name in CELLS:
            raise ValueError(f"two cells are called {name}")
        CELLS[name] = kind
        return kind

    return register


@cell("plain")
class PlainCell(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.both = nn.Linear(2 * width, width)

    def forward(self, value: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.both(torch.cat((value, state), dim=-1)))


@cell("gated")
class GatedCell(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate = nn.Linear(2 * width, width)
        self.change = nn.Linear(2 * width, width)

    def forward(self, value: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        both = torch.cat((value, state), dim=-1)
        gate = torch.sigmoid(self.gate(both))
        return gate * state + (1 - gate) * torch.tanh(self.change(both))


class Forecaster(nn.Module):
    def __init__(self, configuration: Configuration, horizon: int) -> None:
        super().__init__()
        kind = configuration.text("model", "kind")
        if kind not in CELLS:
            raise ConfigurationError(f"[model] kind is one of {', '.join(sorted(CELLS))}")
        width = configuration.integer("model", "width")
        self.values = len(configuration.words("data", "values"))
        self.horizon = horizon
        self.skip = configuration.flag("model", "skip")
        self.enter = nn.Linear(self.values, width)
        self.cell = CELLS[kind](width)
        dropout = configuration.number("model", "dropout")
        self.dropout = nn.Dropout(dropout) if dropout > 0 else None
        self.leave = nn.Linear(width, horizon * self.values)
        for name, parameter in self.named_parameters():
            if "gate" in name and parameter.dim() == 1:
                nn.init.constant_(parameter, 1.0)

    def forward(self, known: torch.Tensor, ahead: int) -> torch.Tensor:
        """[windows, ahead, values]"""
        state = known.new_zeros(len(known), self.enter.out_features)
        for place in range(known.shape[1]):
            state = self.cell(self.enter(known[:, place]), state)
        if self.dropout is not None:
            state = self.dropout(state)
        forecast = self.leave(state).view(len(known), self.horizon, self.values)[:, :ahead]
        if self.skip:
            forecast = forecast + known[:, -1:]
        return forecast
