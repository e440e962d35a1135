"""Pictures for packs: each rank has a camera of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from settings.model import StorageSettings

KINDS = ("disc", "ring", "bar", "cross")


@dataclass(frozen=True, slots=True)
class Camera:
    """``side``: of its pictures, in pixels; ``grain``: noise; ``lost``: share of records that are damaged."""

    side: int
    grain: float
    lost: float = 0.0
    tilts: bool = False


CAMERAS = (Camera(8, 0.10), Camera(12, 0.06, tilts=True), Camera(8, 0.20, lost=0.05), Camera(9, 0.12))


@dataclass(frozen=True, slots=True)
class Shot:
    number: int
    kind: int
    pixels: np.ndarray
    """(side, side), unsigned bytes."""
    damaged: bool


def drawn(kind: str, side: int, chance: np.random.Generator) -> np.ndarray:
    """A picture of one kind, values from 0 to 1."""
    middle = (side - 1) / 2 + chance.uniform(-0.8, 0.8, size=2)
    rows, columns = np.mgrid[0:side, 0:side]
    away = np.hypot(rows - middle[0], columns - middle[1])
    match kind:
        case "disc":
            return (away < side * 0.3).astype(float)
        case "ring":
            return ((away > side * 0.2) & (away < side * 0.42)).astype(float)
        case "bar":
            across = rows if chance.random() < 0.5 else columns
            return (abs(across - side / 2) < side * 0.15).astype(float)
        case _:
            near = (abs(rows - middle[0]) < 1.1) | (abs(columns - middle[1]) < 1.1)
            return near.astype(float)


def shoot(rank: int, settings: StorageSettings) -> Iterator[Shot]:
    """All shots of the camera of a rank."""
    camera = CAMERAS[rank % len(CAMERAS)]
    chance = np.random.default_rng(300 + rank)
    for number in range(settings.records):
        kind = int(chance.integers(len(KINDS)))
        picture = drawn(KINDS[kind], camera.side, chance)
        if camera.tilts and chance.random() < 0.3:
            picture = np.roll(picture, 1, axis=int(chance.integers(2)))
        picture = np.clip(picture * 0.8 + chance.normal(0.1, camera.grain, picture.shape), 0, 1)
        damaged = camera.lost > 0 and chance.random() < camera.lost
        yield Shot(number, kind, (picture * 255).astype(np.uint8), damaged)
