"""How far ahead the surrogate is of use."""

import itertools
from typing import NamedTuple

import torch

from physics.regimes import endless
from setup.options import Options
from surrogate.losses import persistence, relative_errors
from surrogate.network import Parameters, rollout


class Score(NamedTuple):
    error: float
    skill: float
    reach: int

    @property
    def is_useful(self) -> bool:
        return self.skill > 0 and self.reach > 0


def reach_of(forecast: torch.Tensor, truth: torch.Tensor, tolerance: float) -> int:
    """Steps until the error is beyond the tolerance."""
    for step in range(truth.shape[1]):
        if float(relative_errors(forecast[:, step : step + 1], truth[:, step : step + 1]).mean()) > tolerance:
            return step
    return truth.shape[1]


@torch.no_grad()
def score(parameters: Parameters, options: Options, steepness: float, seed: int) -> Score:
    """On fresh trajectories of this rank's own regime."""
    source = endless(options.grid, steepness, 6, options.viscosity, options.substeps, seed)
    fields = torch.stack([each.fields for each in itertools.islice(source, 4)])
    start, truth = fields[:, 0], fields[:, 1:]
    forecast = rollout(parameters, start, truth.shape[1])
    error = float(relative_errors(forecast, truth).mean())
    base = float(persistence(start, truth).mean())
    return Score(error, 1 - error / base if base > 0 else 0.0, reach_of(forecast, truth, 0.3))
