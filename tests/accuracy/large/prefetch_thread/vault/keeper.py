"""Keeps checkpoints: the last few, and the best."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path

import torch
from torch import nn

from settings.model import VaultSettings

log = logging.getLogger("sorter.vault")


class Keeper:
    """A context manager; writes on one rank only, and never communicates."""

    def __init__(self, settings: VaultSettings, *, enabled: bool):
        self.settings = settings
        self.enabled = enabled
        self.folder = Path(settings.folder)
        self.written: list[Path] = []

    def __enter__(self) -> Keeper:
        if self.enabled:
            self.folder.mkdir(parents=True, exist_ok=True)
            for left_over in self.folder.glob("*.draft"):
                left_over.unlink()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.enabled and kind is not None and self.written:
            log.error("the last checkpoint is %s", self.written[-1].name)

    def keep(self, model: nn.Module, step: int, *, best: bool) -> None:
        """Write a checkpoint, and one more where it is the best."""
        if not self.enabled:
            return
        path = self.folder / f"step-{step:05d}.pt"
        self.write(model, path)
        self.written.append(path)
        if best and self.settings.best:
            self.write(model, self.folder / "best.pt")
        while len(self.written) > self.settings.keep:
            with contextlib.suppress(FileNotFoundError):
                self.written.pop(0).unlink()

    @staticmethod
    def write(model: nn.Module, path: Path) -> None:
        """In one piece."""
        draft = path.with_suffix(".draft")
        torch.save(model.state_dict(), draft)
        draft.replace(path)
