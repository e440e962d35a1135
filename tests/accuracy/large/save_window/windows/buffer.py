"""A reservoir of windows; each rank fills its own from its own simulations."""

import random
from collections.abc import Iterator
from typing import NamedTuple

import torch

from physics.regimes import Trajectory


class Window(NamedTuple):
    start: torch.Tensor
    following: torch.Tensor
    shock: bool


class Reservoir:
    def __init__(self, capacity: int, seed: int) -> None:
        self.capacity = capacity
        self.random = random.Random(seed)
        self.windows: list[Window] = []
        self.seen = 0
        self.replaced = 0

    def add(self, window: Window) -> None:
        self.seen += 1
        if len(self.windows) < self.capacity:
            self.windows.append(window)
            return
        place = self.random.randrange(self.seen)
        if place < self.capacity or window.shock:
            self.windows[place % self.capacity] = window
            self.replaced += 1

    @property
    def shocks(self) -> int:
        return sum(1 for window in self.windows if window.shock)


def cut(trajectory: Trajectory, horizon: int) -> Iterator[Window]:
    fields = trajectory.fields
    for start in range(len(fields) - horizon):
        yield Window(fields[start], fields[start + 1 : start + 1 + horizon], trajectory.has_shock)
