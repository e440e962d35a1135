"""How well held-out text is foretold."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

import torch
from torch import nn

from batching.stream import Stream
from comm.gather import Totals
from net.language_model import loss_of

MOST_BLOCKS = 12
_LARGEST_EXPONENT = 20.0


@dataclass(frozen=True)
class Assessment:
    perplexity: float
    blocks: int
    own_by_kind: dict[str, float]

    @property
    def hardest(self) -> str:
        if not self.own_by_kind:
            return "none"
        return max(self.own_by_kind, key=lambda kind: self.own_by_kind[kind])


def assess(model: nn.Module, stream: Stream, epoch: int) -> Assessment:
    """Every rank looks at as many blocks as its own shard holds out."""
    losses: dict[str, list[float]] = defaultdict(list)
    totals = Totals(("loss", "blocks"))
    model.eval()
    with torch.no_grad():
        for batch in stream.held_out(epoch, MOST_BLOCKS):
            loss = float(loss_of(model(batch.inputs), batch.targets))
            if math.isnan(loss):
                continue
            losses[batch.kind].append(loss)
            totals.add(loss=loss, blocks=1)
    summed = totals.summed()
    blocks = int(summed["blocks"])
    mean = summed["loss"] / blocks if blocks else _LARGEST_EXPONENT
    own = {kind: sum(values) / len(values) for kind, values in losses.items() if values}
    return Assessment(math.exp(min(mean, _LARGEST_EXPONENT)), blocks, own)
