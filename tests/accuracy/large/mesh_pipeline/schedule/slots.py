"""One forward, one backward: what a stage does in a step, in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from feed.micro import Micro
from mesh.layout import Place


class Kind(Enum):
    FORWARD = "F"
    BACKWARD = "B"


@dataclass(frozen=True)
class Slot:
    kind: Kind
    micro: Micro

    def __str__(self) -> str:
        return f"{self.kind.value}{self.micro.index}"


def slots_of(here: Place, micros: list[Micro]) -> Iterator[Slot]:
    """Later stages begin to go back earlier."""
    ahead = min(len(micros), here.stages - here.stage - 1)
    for micro in micros[:ahead]:
        yield Slot(Kind.FORWARD, micro)
    for number in range(ahead, len(micros)):
        yield Slot(Kind.FORWARD, micros[number])
        yield Slot(Kind.BACKWARD, micros[number - ahead])
    for micro in micros[len(micros) - ahead :] if ahead else ():
        yield Slot(Kind.BACKWARD, micro)


def most_in_flight(slots: list[Slot]) -> int:
    """How many micro-batches are between forward and backward at once."""
    now = most = 0
    for slot in slots:
        now += 1 if slot.kind is Kind.FORWARD else -1
        most = max(most, now)
    return most
