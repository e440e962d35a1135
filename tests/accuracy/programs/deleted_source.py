"""The source is deleted once it runs.

A launcher writes a script to a temporary folder, starts the ranks and cleans up behind them. No line of it
can be shown any more. Rank 0 alone calls a barrier.
"""

# /// hangdoc
# launch = "python"
# outcome = "hang"
# culprits = [0]
# file = "generated.py"
# lines = [14, 15]
# source = "constructed"
# ///

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FIXED = os.environ.get("FIXED") == "1"
PROGRAM = """
import os, sys, time
import torch
import torch.distributed as dist

def main():
    dist.init_process_group("gloo")
    while os.path.exists(__file__):
        time.sleep(0.05)
    rank = dist.get_rank()
    for step in range(5):
        dist.all_reduce(torch.ones(4))
        if rank == 0 and step == 3 and os.environ["FIXED"] != "1":
            dist.barrier()
    dist.destroy_process_group()

main()
"""


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "generated.py"
        path.write_text(PROGRAM)
        job = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "WORLD_SIZE": "3", "FIXED": str(int(FIXED))}
        ranks = [subprocess.Popen([sys.executable, path], env=os.environ | job | {"RANK": str(r)}) for r in range(3)]
        time.sleep(6)  # they have read it
    return max(rank.wait() for rank in ranks)


def free_port():
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
