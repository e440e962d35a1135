"""torchrun -m package: the program is a package, started by name.

The package's modules import each other relatively; the fault is two modules away from the start. The last
rank believes that it is a leader as well, because of an off-by-one in a comparison.
"""

# /// hangdoc
# launch = "python"
# outcome = "hang"
# culprits = [2]
# file = "leaders.py"
# lines = [10, 11]
# source = "constructed"
# ///

import os
import subprocess
import sys
import tempfile
from pathlib import Path

FIXED = os.environ.get("FIXED") == "1"
MAIN = """
import torch.distributed as dist
from .loop import train

dist.init_process_group("gloo")
train(dist.get_rank(), dist.get_world_size())
dist.destroy_process_group()
"""
LOOP = """
import torch
import torch.distributed as dist
from .leaders import report

def train(rank, world_size):
    for step in range(5):
        dist.all_reduce(torch.ones(4))
        report(rank, world_size, step)
    dist.barrier()
"""
LEADERS = """
import os
import torch
import torch.distributed as dist

def leads(rank, world_size):
    return rank == world_size or (rank == world_size - 1 and os.environ["FIXED"] != "1")

def report(rank, world_size, step):
    if leads(rank, world_size) and step == 3:
        dist.broadcast(torch.ones(4), src=rank)
"""


def main():
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "job"
        package.mkdir()
        for name, text in (("__init__", ""), ("__main__", MAIN), ("loop", LOOP), ("leaders", LEADERS)):
            (package / f"{name}.py").write_text(text)
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3", "-m", "job"]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join((folder, os.environ.get("PYTHONPATH", "")))}
        return subprocess.call(command, cwd=folder, env=environment | {"FIXED": str(int(FIXED))})


if __name__ == "__main__":
    sys.exit(main())
