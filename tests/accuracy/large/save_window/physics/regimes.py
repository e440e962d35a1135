import math
from collections.abc import Iterator
from typing import NamedTuple

import torch

from physics.burgers import advance, steepest

SPAN = 0.04


class Trajectory(NamedTuple):
    fields: torch.Tensor
    steepness: float
    work: int

    @property
    def has_shock(self) -> bool:
        return self.steepness > 14.0


def initial(grid: int, steepness: float, generator: torch.Generator) -> torch.Tensor:
    """A few waves; steeper ones have more of the short ones."""
    x = torch.arange(grid) / grid
    u = torch.zeros(grid)
    for wave in range(1, 4):
        if wave > 1 and steepness < 0.5 * wave:
            continue
        phase = float(torch.rand((), generator=generator))
        height = float(torch.rand((), generator=generator)) * steepness / wave
        u = u + height * torch.sin(2 * math.pi * (wave * x + phase))
    return u


def trajectory(
    grid: int, steepness: float, length: int, viscosity: float, substeps: int, generator: torch.Generator
) -> Trajectory:
    u = initial(grid, steepness, generator)
    fields, work, steep = [u], 0, steepest(u)
    for _ in range(length):
        u, count = advance(u, SPAN, viscosity, substeps)
        work += count
        steep = max(steep, steepest(u))
        fields.append(u)
    return Trajectory(torch.stack(fields), steep, work)


def endless(
    grid: int, steepness: float, length: int, viscosity: float, substeps: int, seed: int
) -> Iterator[Trajectory]:
    generator = torch.Generator().manual_seed(seed)
    while True:
        try:
            yield trajectory(grid, steepness, length, viscosity, substeps, generator)
        except RuntimeError:
            continue
