"""Starts jobs as a launcher of one's own does, one after the other: ``python by_hand.py NUMBER:script.py …``.
Arguments after ``--`` are every script's.

Imports torch once and forks the ranks of every job: short jobs cost a fraction of what they cost under torchrun.
Prints how each job ended, and ends with the first status that is not 0.
"""

from __future__ import annotations

import gc
import os
import runpy
import socket
import sys
from pathlib import Path


def free_port() -> int:
    """A port for the job's store."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def forked(number: int) -> tuple[list[int], int | None]:
    """The ranks' process ids and, in a rank, its number."""
    world = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(number)}
    ranks: list[int] = []
    for rank in range(number):
        child = os.fork()
        if not child:
            os.environ.update(world, RANK=str(rank), LOCAL_RANK=str(rank))
            return [], rank
        ranks.append(child)
    return ranks, None


def main(words: list[str]) -> int:
    """Run one job after the other, each to its end."""
    split = words.index("--") if "--" in words else len(words)
    jobs, arguments = words[:split], words[split + 1 :]
    gc.disable()  # of what an import leaves nothing is garbage
    import torch.distributed  # noqa: F401

    gc.freeze()  # what the ranks share need not be copied for each
    gc.enable()
    first = 0
    for job in jobs:
        number, _, script = job.partition(":")
        ranks, rank = forked(int(number))
        if rank is not None:
            sys.argv[:] = [script, *arguments]
            sys.path[0] = str(Path(script).parent)
            runpy.run_path(script, run_name="__main__")
            return 0  # and the interpreter ends as it always does: threads, then exit hooks
        ends = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in ranks]
        print(Path(script).stem, *ends, flush=True)
        first = first or next((end for end in ends if end), 0)
    os._exit(first & 0xFF)  # to take torch apart would cost a third of what it cost to import it


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
