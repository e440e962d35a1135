"""Each stage of the first replica keeps its own part."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from archive.index import Index
from mesh.groups import Mesh
from stages.stage import Stage


class Archive:
    def __init__(self, folder: Path, mesh: Mesh) -> None:
        self.folder = folder
        self.mesh = mesh
        self.index = Index(folder / f"index-{mesh.here.stage}.json")

    def path(self, step: int) -> Path:
        return self.folder / f"step-{step:04d}-stage-{self.mesh.here.stage}.pt"

    def keep(self, step: int, stage: Stage) -> None:
        if self.mesh.here.replica != 0:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.path(step)
        partial = path.with_suffix(f".{os.getpid()}")
        torch.save(stage.module.state_dict(), partial)
        os.replace(partial, path)
        for old in self.index.add(step, keep=2):
            self.path(old).unlink(missing_ok=True)

    def resume(self, stage: Stage) -> int:
        """The step to begin with. The index of a stage is the same for all replicas, which read one file system."""
        newest = self.index.newest()
        if newest is None or not self.path(newest).exists():
            return 0
        stage.module.load_state_dict(torch.load(self.path(newest), weights_only=True))
        return newest + 1
