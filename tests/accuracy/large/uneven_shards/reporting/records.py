"""Numbers for a program: one JSON line for each epoch."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

from comm.world import World

if TYPE_CHECKING:
    from assessment.perplexity import Assessment
    from training.epoch import EpochResult


class Records:
    def __init__(self, folder: Path, world: World) -> None:
        self.world = world
        self.started = time.time()
        self._file: IO[str] | None = None
        if world.is_main or world.local_rank == 1:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = (folder / f"epochs-{world.rank}.jsonl").open("a", encoding="utf-8")

    def write(self, epoch: int, result: EpochResult, assessment: Assessment, slow: int) -> None:
        if self._file is None:
            return
        entry: dict[str, object] = {"epoch": epoch, "seconds": round(time.time() - self.started, 2)}
        if result.is_finite:
            entry["loss"] = round(result.loss, 5)
        if slow:
            entry["slow_steps"] = slow
        if self.world.is_main:
            entry |= {"perplexity": round(assessment.perplexity, 4), "blocks": assessment.blocks}
        else:
            entry["hardest"] = assessment.hardest
        self._file.write(json.dumps(entry) + "\n")
        self._file.flush()

    def close(self) -> None:
        if self._file is not None and not self._file.closed:
            self._file.close()
