"""Carries out the slots of a step on this stage."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from feed.micro import Micro
from feed.tokens import Tokens
from mesh.layout import Place
from schedule.ledger import Ledger
from schedule.memory import Held, Memory
from schedule.slots import Kind, Slot
from stages.stage import Stage
from wire.channel import Channel


@dataclass
class StepOutcome:
    losses: list[float] = field(default_factory=list)
    forwards: int = 0
    backwards: int = 0

    @property
    def loss(self) -> float:
        return sum(self.losses) / len(self.losses) if self.losses else 0.0


class Runner:
    def __init__(
        self, here: Place, stage: Stage, channel: Channel, tokens: Tokens, ledger: Ledger, memory: Memory
    ) -> None:
        self.here = here
        self.stage = stage
        self.channel = channel
        self.tokens = tokens
        self.ledger = ledger
        self.memory = memory
        self.outcome = StepOutcome()

    def run(self, slots: list[Slot], micros: list[Micro]) -> StepOutcome:
        self.outcome = StepOutcome()
        self.ledger.open(micros)
        for slot in slots:
            match slot.kind:
                case Kind.FORWARD:
                    self.forward(slot)
                case Kind.BACKWARD if self.memory.holds(slot.micro):
                    self.backward(slot, scale=1.0 / len(micros))
        return self.outcome

    def forward(self, slot: Slot) -> None:
        if not self.ledger.admits(slot.micro):
            return
        micro = slot.micro
        given = self._given(micro)
        result = self._compute(micro, given)
        self.channel.send_on(result, micro.step, micro.index)
        self.memory.keep(micro, given, result)
        self.outcome.forwards += 1

    def backward(self, slot: Slot, scale: float) -> None:
        held = self.memory.take(slot.micro)
        result = self._result(held)
        gradient = self.channel.receive_from_after(tuple(result.shape), slot.micro.step, slot.micro.index)
        if gradient is None:
            self.outcome.losses.append(result.item())
            (result * scale).backward()
        else:
            result.backward(gradient)
        self.channel.send_back(held.given.grad, slot.micro.step, slot.micro.index)
        self.outcome.backwards += 1

    def _given(self, micro: Micro) -> torch.Tensor:
        received = self.channel.receive_from_before(micro.shape(self.stage.width), micro.step, micro.index)
        if received is None:
            return self.tokens.draw(micro)[0]
        return received.requires_grad_()

    def _compute(self, micro: Micro, given: torch.Tensor) -> torch.Tensor:
        self.ledger.book(micro)
        result = self.stage.compute(given)
        return self.stage.loss(result, self.tokens.draw(micro)[1]) if self.here.is_last else result

    def _result(self, held: Held) -> torch.Tensor:
        if held.result is not None:
            return held.result
        return self._compute(held.micro, held.given)
