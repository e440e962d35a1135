"""A backend that is written in Python, over the store, as c10d's hooks see any custom backend. Rank 1 skips a call.

FIXED=1: no rank does. Needs torch 2.15: older ones record nothing of such a backend, or keep no backend in Python.
"""

from __future__ import annotations

import os
import threading
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend, _create_work_from_future  # type: ignore[import-untyped]


class Board(Backend):  # type: ignore[misc]
    """Each call ends when every rank has put its name on the board."""

    def __init__(self, store: dist.Store, rank: int, size: int, _timeout: timedelta) -> None:
        super().__init__(rank, size)
        self.store, self.calls = store, 0

    def getBackendName(self) -> str:
        return "board"

    def _posted(self, name: str, result: Any) -> Any:
        self.calls += 1
        names = [f"{self.calls} {name} {rank}" for rank in range(self.size())]
        done: Any = torch.futures.Future()

        def wait() -> None:
            self.store.set(names[self.rank()], "")
            while not self.store.check(names):
                time.sleep(0.01)
            done.set_result(result)

        threading.Thread(target=wait).start()  # Python waits for it at exit: a thread inside C++ then would abort
        return _create_work_from_future(done)

    def allreduce(self, tensors: Any, _options: Any) -> Any:
        return self._posted("allreduce", tensors)

    def broadcast(self, tensors: Any, _options: Any) -> Any:
        return self._posted("broadcast", tensors)


def step(number: int, weights: torch.Tensor) -> None:
    dist.all_reduce(weights)
    if number == 5 and dist.get_rank() == 1 and not os.environ.get("FIXED"):
        return
    dist.broadcast(weights, 0)


def main() -> None:
    dist.Backend.register_backend("board", Board, devices=["cpu"])
    dist.init_process_group("board")
    for number in range(20):
        step(number, torch.ones(3))
    dist.destroy_process_group()
    print("done", flush=True)


if __name__ == "__main__":
    main()
