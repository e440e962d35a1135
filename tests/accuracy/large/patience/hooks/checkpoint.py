import logging
import os
from pathlib import Path

import torch

from hooks.base import HOOKS, Hook
from parallel import comm

log = logging.getLogger("checkpoint")


@HOOKS.register("checkpoint")
class Checkpoint(Hook):
    """Rank 0 keeps the weights with the best accuracy over all sites, and the last ones."""

    order = 70

    def __init__(self, cfg):
        super().__init__(cfg)
        self.folder = Path(cfg.get("run", "folder"))
        self.best = -1.0

    def after_epoch(self, trainer, metrics):
        better = metrics["accuracy"] > self.best
        if better:
            self.best = metrics["accuracy"]
        if not comm.is_main():
            return
        names = ["last.pt", "best.pt"] if better else ["last.pt"]
        for name in names:
            self.write(trainer, name)

    def write(self, trainer, name):
        self.folder.mkdir(parents=True, exist_ok=True)
        partial = self.folder / f".{name}"
        torch.save({"model": trainer.model.state_dict(), "state": trainer.state.as_dict()}, partial)
        os.replace(partial, self.folder / name)

    def before_fit(self, trainer):
        path = self.folder / "resume.pt"
        if not path.exists():
            return
        saved = torch.load(path, weights_only=True)
        trainer.model.load_state_dict(saved["model"])
        if comm.is_main():
            log.info("resumed from %s", path)
