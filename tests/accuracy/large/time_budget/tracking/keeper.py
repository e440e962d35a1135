"""Weights on disk. The first rank keeps the best ones, the last rank the newest ones."""

import tempfile
from pathlib import Path

import torch

from core.ranks import only_first


class Keeper:
    def __init__(self, options, me):
        self.options = options
        self.me = me
        self.made = None
        self.folder = None
        if me.first or me.last:
            if options["folder"]:
                self.folder = Path(options["folder"])
                self.folder.mkdir(parents=True, exist_ok=True)
            else:
                self.made = tempfile.TemporaryDirectory(prefix="glyphs-", dir=".")
                self.folder = Path(self.made.name)
        self.newest = []

    def due(self, step):
        return bool(self.options["every"]) and step % self.options["every"] == 0

    @only_first
    def best(self, net, step, value):
        torch.save({"net": net.state_dict(), "step": step, "right": value}, self.folder / "best.pt")

    def save(self, net, step):
        if not self.me.last:
            return
        path = self.folder / f"step-{step:05d}.pt"
        torch.save(net.state_dict(), path)
        self.newest.append(path)
        while len(self.newest) > self.options["number"]:
            self.newest.pop(0).unlink(missing_ok=True)

    def close(self):
        if self.made is not None:
            self.made.cleanup()
