"""Lightning Fabric re-runs this script for its second rank."""

from __future__ import annotations

import time

import torch
from lightning.fabric import Fabric

if __name__ == "__main__":
    fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
    fabric.launch()
    fabric.all_reduce(torch.ones(1))
    fabric.print("ready")
    time.sleep(1000)
