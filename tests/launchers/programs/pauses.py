"""A rank started by hand: steps, and then an honest pause of all ranks, again and again."""

import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist


def main(folder: Path, seconds: float) -> None:
    """Say in a file of one's own how many pauses have ended."""
    dist.init_process_group("gloo", timeout=timedelta(minutes=10))
    for pause in range(1000):
        (folder / f"pauses{dist.get_rank()}").write_text(str(pause))
        for _ in range(20):
            dist.all_reduce(torch.ones(2))
            time.sleep(0.1)
        time.sleep(seconds)


main(Path(sys.argv[1]), float(sys.argv[2]))
