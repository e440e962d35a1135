"""The script that Fabric runs again thinks that it is already running.

A guard at the top of main() keeps two runs out of the same folder: if there is a lock file, it prints a
line and returns. Then comes fabric.launch(), which starts rank 1 by running this script again. Rank 1 finds
rank 0's lock file and ends with status 0, which Fabric's watcher of children takes for success. Rank 0
waits for it in launch() and only its own ports are open.
"""

# /// hangdoc
# launch = "python"
# outcome = "hang"
# cause = "HD401"
# culprits = [1]
# lines = [42]
# code = ["fabric.launch()"]
# source = "https://github.com/Lightning-AI/pytorch-lightning/issues/20536"
# ///

import os
import tempfile
from pathlib import Path

import torch
from lightning.fabric import Fabric

FIXED = os.environ.get("FIXED") == "1"


def claimed(folder):
    lock = folder / "run.lock"
    if lock.exists():
        print(f"{lock} exists: another run uses this folder")
        return True
    lock.touch()
    return False


def main(folder):
    fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
    if not FIXED and claimed(folder):
        return
    fabric.launch()
    if FIXED and fabric.broadcast(fabric.is_global_zero and claimed(folder)):
        return
    model = fabric.setup_module(torch.nn.Linear(8, 2))
    for _ in range(3):
        fabric.backward(model(torch.ones(4, 8)).pow(2).mean())
    fabric.barrier()


def run_folder():
    # Rank 1 inherits the environment, so both ranks share one folder.
    if "RUN_FOLDER" not in os.environ:
        os.environ["RUN_FOLDER"] = tempfile.mkdtemp(prefix="child-exits-")
    return Path(os.environ["RUN_FOLDER"])


if __name__ == "__main__":
    main(run_folder())
