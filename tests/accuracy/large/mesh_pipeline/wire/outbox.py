from __future__ import annotations

import torch
import torch.distributed as dist


class Outbox:
    """Messages on their way; their tensors are kept until they have gone."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.pending: list[tuple[dist.Work, torch.Tensor]] = []
        self.early = 0

    def put(self, tensor: torch.Tensor, to: int, tag: int) -> None:
        if len(self.pending) >= self.most:
            self.early += 1
            self._wait(len(self.pending) - self.most + 1)
        work = dist.isend(tensor, to, tag=tag)
        if work is not None:
            self.pending.append((work, tensor))

    def settle(self) -> None:
        self._wait(len(self.pending))

    def _wait(self, count: int) -> None:
        while count > 0 and self.pending:
            work, _ = self.pending.pop(0)
            work.wait()
            count -= 1
