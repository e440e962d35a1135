"""Ranks that torch has no part in: they hold a connection to a store, and wait in functions that are called as torch's.

A watch of them costs a fraction of what one of real ranks does. Argument: a JSON document of ``helpers/played_job.py``.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

PLAY = json.loads(sys.argv[1])
FOLDER = Path(PLAY["folder"])
sys.path.insert(0, str(FOLDER / "site-packages"))
if not PLAY["launches"]:
    from torch.distributed.distributed_c10d import all_reduce, barrier


def main() -> None:
    if PLAY["launches"]:
        launch()
    rank = int(os.environ["RANK"])
    if PLAY["store"] is None:
        train(rank)
    with socket.create_connection(PLAY["store"], timeout=60):
        train(rank)


def train(rank: int) -> None:
    while not (FOLDER / "hang").exists():
        all_reduce(0.005)
        time.sleep(0.005)
    time.sleep(0.2)  # until all have seen it
    if rank == PLAY["culprit"]:
        barrier(None)
    all_reduce(None)


def launch() -> None:
    """Start the ranks of this host, as torchrun does, and end with them."""
    ranks = PLAY["ranks"]
    common = {"WORLD_SIZE": str(PLAY["world"])}
    if PLAY["store"] is not None:
        common |= {"MASTER_ADDR": PLAY["store"][0], "MASTER_PORT": str(PLAY["store"][1])}
    common |= {"LOCAL_WORLD_SIZE": str(len(ranks)), "TORCHELASTIC_RUN_ID": PLAY["run"]}
    children = []
    for local, rank in enumerate(ranks):
        own = {"RANK": str(rank), "LOCAL_RANK": str(local), "GROUP_RANK": str(ranks[0] // len(ranks))}
        line = [sys.executable, __file__, json.dumps({**PLAY, "launches": False})]
        children.append(subprocess.Popen(line, env={**os.environ, **common, **own}))

    def end(*_: object) -> None:
        for child in children:
            child.terminate()

    signal.signal(signal.SIGTERM, end)
    sys.exit(max(abs(child.wait()) for child in children))


main()
