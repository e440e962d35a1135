from collections.abc import Iterator
from typing import NamedTuple

import torch

from physics.regimes import Trajectory
from setup.options import Options
from windows.buffer import Reservoir, Window, cut


class Batch(NamedTuple):
    start: torch.Tensor
    following: torch.Tensor
    shocks: int


def augmented(window: Window, reservoir: Reservoir, noise: float) -> Window:
    """Shifted along the ring, sometimes mirrored, and with a little noise."""
    shift = reservoir.random.randrange(window.start.shape[-1])
    start, following = window.start.roll(shift, -1), window.following.roll(shift, -1)
    if reservoir.random.random() < 0.5:
        start, following = -start.flip(-1), -following.flip(-1)
    if noise > 0 and reservoir.random.random() < 0.7:
        start = start + noise * torch.randn(start.shape)
    return Window(start, following, window.shock)


def chosen(reservoir: Reservoir, count: int) -> list[Window]:
    """At random, but with a shock among them if there is one."""
    found = [reservoir.random.choice(reservoir.windows) for _ in range(count)]
    if not any(window.shock for window in found):
        shocks = [window for window in reservoir.windows if window.shock]
        if shocks:
            found[-1] = reservoir.random.choice(shocks)
    return found


def batches(options: Options, source: Iterator[Trajectory], seed: int) -> Iterator[Batch]:
    """Without end. Refills the reservoir by one trajectory for each batch until it is full, then for every other."""
    reservoir = Reservoir(64, seed)
    noise = options.stages[0].noise
    number = 0
    while True:
        if len(reservoir.windows) < reservoir.capacity or number % 2 == 0:
            for window in cut(next(source), options.horizon):
                reservoir.add(window)
        picked = [augmented(window, reservoir, noise) for window in chosen(reservoir, options.batch)]
        yield Batch(
            torch.stack([window.start for window in picked]),
            torch.stack([window.following for window in picked]),
            sum(window.shock for window in picked),
        )
        number += 1
