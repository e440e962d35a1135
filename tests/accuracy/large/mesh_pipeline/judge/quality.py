"""A forward pass on fresh samples, once training is over."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from feed.micro import Micro
from plan.config import Config
from wire.channel import Way

if TYPE_CHECKING:
    from schedule.training import Training

ROUNDS = 2


@dataclass(frozen=True)
class Quality:
    right: int
    asked: int
    hardest: int | None

    def __str__(self) -> str:
        share = self.right / self.asked if self.asked else 0.0
        hard = f", hardest {self.hardest}" if self.hardest is not None else ""
        return f"{100 * share:.1f} %{hard}"


def hardest_of(wrong: Counter[int], least: int = 2) -> int | None:
    common = [token for token, count in wrong.most_common(3) if count >= least]
    return common[0] if common else None


@torch.no_grad()
def judge(training: Training, config: Config) -> Quality | None:
    """What the last stage found; None on other stages."""
    channel, stage = training.channel, training.stage
    training.outbox.settle()
    right = asked = 0
    wrong: Counter[int] = Counter()
    for number in range(ROUNDS):
        micro = Micro(config.steps + 1, number, config.samples, config.usual_length)
        given = channel.receive_from_before(micro.shape(config.width), micro.step, number, Way.JUDGED)
        inputs, targets = training.tokens.draw(micro)
        result = stage.compute(given if given is not None else inputs)
        if not training.mesh.here.is_last:
            channel.send_on(result, micro.step, number, Way.JUDGED)
            continue
        hits = result.argmax(-1) == targets
        right += int(hits.sum())
        asked += hits.numel()
        wrong.update(targets[~hits].tolist())
    return Quality(right, asked, hardest_of(wrong)) if asked else None
