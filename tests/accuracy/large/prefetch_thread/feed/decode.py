"""Pictures of any size to tensors of one size."""

from __future__ import annotations

import numpy as np
import torch

from storage.pack import Picture


def to_side(pixels: np.ndarray, side: int) -> np.ndarray:
    """Nearest pixels of a square picture; the same object where it has the size already."""
    have = pixels.shape[0]
    if have == side:
        return pixels
    if have % side == 0:
        step = have // side
        return pixels.reshape(side, step, side, step).mean(axis=(1, 3))
    places = (np.arange(side) + 0.5) * have / side
    chosen = places.astype(int)
    return pixels[np.ix_(chosen, chosen)]


def decoded(picture: Picture, side: int) -> torch.Tensor:
    """(1, side, side), of mean 0."""
    values = to_side(picture.pixels, side).astype(np.float32) / 255.0
    spread = float(values.std())
    values = values - values.mean()
    if spread > 1e-3:
        values = values / spread
    return torch.from_numpy(np.ascontiguousarray(values))[None]
