"""When to save."""

from typing import NamedTuple

from setup.options import SaveOptions


class SaveWindow(NamedTuple):
    first: int
    every: int
    apart: int
    high_water: float
    last: int = -1000

    def saved(self, step: int) -> "SaveWindow":
        return self._replace(last=step)


def new_window(options: SaveOptions) -> SaveWindow:
    high_water = options.high_water * options.quota_kb * 1024
    return SaveWindow(options.first, options.every, options.apart, high_water)


def wants_save(step: int, used: float, window: SaveWindow) -> bool:
    if step < window.first or step - window.last < window.apart:
        return False
    if used > window.high_water:
        return True
    return window.every > 0 and step % window.every == 0


def fill(used: float, window: SaveWindow) -> str:
    share = used / window.high_water if window.high_water else 0.0
    if share < 0.5:
        return "low"
    return "rising" if share < 0.9 else "high"
