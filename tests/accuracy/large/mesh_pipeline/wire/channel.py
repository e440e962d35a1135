"""Activations go forward and are waited for; gradients go back while the next micro-batch is computed."""

from __future__ import annotations

from enum import IntEnum

import torch
import torch.distributed as dist

from mesh.layout import Place
from wire.outbox import Outbox


class Way(IntEnum):
    FORWARD = 0
    BACKWARD = 1
    JUDGED = 2


def tag_of(step: int, micro: int, way: Way) -> int:
    return (step * 64 + micro) * 4 + int(way)


class Channel:
    def __init__(self, here: Place, outbox: Outbox) -> None:
        self.here = here
        self.outbox = outbox
        self.sent = 0
        self.received = 0

    def send_on(self, tensor: torch.Tensor, step: int, micro: int, way: Way = Way.FORWARD) -> None:
        if self.here.after is None:
            return
        dist.send(tensor.detach().contiguous(), self.here.after, tag=tag_of(step, micro, way))
        self.sent += 1

    def receive_from_before(
        self, shape: tuple[int, ...], step: int, micro: int, way: Way = Way.FORWARD
    ) -> torch.Tensor | None:
        if self.here.before is None:
            return None
        tensor = torch.empty(shape)
        dist.recv(tensor, self.here.before, tag=tag_of(step, micro, way))
        self.received += 1
        return tensor

    def send_back(self, gradient: torch.Tensor | None, step: int, micro: int) -> None:
        if self.here.before is None or gradient is None:
            return
        self.outbox.put(gradient.contiguous(), self.here.before, tag_of(step, micro, Way.BACKWARD))
        self.sent += 1

    def receive_from_after(self, shape: tuple[int, ...], step: int, micro: int) -> torch.Tensor | None:
        if self.here.after is None:
            return None
        tensor = torch.empty(shape)
        dist.recv(tensor, self.here.after, tag=tag_of(step, micro, Way.BACKWARD))
        self.received += 1
        return tensor
