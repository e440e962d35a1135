"""Starts ranks by hand, as a launcher of one's own does: ``python by_hand.py NUMBER script.py``.

Ends with the first status that is not 0. Unlike torchrun it does not import torch, which is half of what a short job of
two ranks costs.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys


def main(number: int, script: str) -> int:
    """Run the script once for each rank and wait for all of them."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    world = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(number), "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-u", script], env={**os.environ, **world, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        )
        for rank in range(number)
    ]
    return next((status for rank in ranks if (status := rank.wait())), 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2]))
