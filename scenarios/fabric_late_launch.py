"""Fabric launches inside the trainer's constructor, after the constructor has looked at the world.

fabric.launch() starts rank 1 by running this script again from the top. The constructor asks whether the
feature cache exists and then creates it, all before launch(). Rank 0 finds no cache and makes one; rank 1,
started later, finds rank 0's and takes the warm path. Rank 0 hangs deep in setup_module, where
DistributedDataParallel compares parameter shapes, while rank 1 waits in fabric.barrier(). Calling launch()
first, and deciding once for everybody, cures it.
"""

# /// hangdoc
# launch = "python"
# outcome = "hang"
# cause = "HD110"
# culprits = [1]
# lines = [35]
# code = ["self.fabric.launch()"]
# source = "https://github.com/Lightning-AI/pytorch-lightning/issues/20536"
# ///

import os
import tempfile
from pathlib import Path

import torch
from lightning.fabric import Fabric

FIXED = os.environ.get("FIXED") == "1"


class Trainer:
    def __init__(self, cache):
        self.fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
        self.warm = cache.exists()
        cache.mkdir(exist_ok=True)
        self.fabric.launch()

    def load_features(self):
        features = torch.ones(4, 8)
        self.fabric.barrier()
        return features

    def run(self):
        features = torch.zeros(4, 8)
        if self.warm:
            features = self.load_features()
        model = self.fabric.setup_module(torch.nn.Linear(8, 2))
        for _ in range(3):
            self.fabric.backward(model(features).pow(2).mean())
        self.fabric.barrier()


class CorrectedTrainer(Trainer):
    def __init__(self, cache):
        self.fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
        self.fabric.launch()
        self.warm = self.fabric.broadcast(cache.exists())
        cache.mkdir(exist_ok=True)


def run_folder():
    # Rank 1 inherits the environment, so both ranks share one folder.
    if "RUN_FOLDER" not in os.environ:
        os.environ["RUN_FOLDER"] = tempfile.mkdtemp(prefix="late-launch-")
    return Path(os.environ["RUN_FOLDER"])


if __name__ == "__main__":
    trainer = CorrectedTrainer if FIXED else Trainer
    trainer(run_folder() / "features").run()
