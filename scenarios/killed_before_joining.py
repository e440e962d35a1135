"""A rank is killed while it loads its data, before it has joined.

The job's own launcher starts three ranks and waits for them one after the other, rank 0 first. Rank 1 is
killed before init_process_group, so no connection exists that could break: ranks 0 and 2 wait for it, the
launcher waits for rank 0, and rank 1 stays a zombie that nobody collects.
"""

# /// hangdoc
# launch = "python"
# outcome = "hang"
# cause = "HD402"
# culprits = [1]
# lines = [35]
# code = ["dist.init_process_group(\"gloo\")"]
# source = "constructed"
# ///

import os
import signal
import socket
import subprocess
import sys

import torch
import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"
WORLD_SIZE = 3


def work(rank):
    data = torch.ones(1024)
    if rank == 1 and not FIXED:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.init_process_group("gloo")
    dist.all_reduce(data)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def start():
    job = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(WORLD_SIZE)}
    workers = []
    for rank in range(WORLD_SIZE):
        environment = os.environ | job | {"RANK": str(rank)}
        workers.append(subprocess.Popen([sys.executable, __file__], env=environment))
    return max(worker.wait() for worker in workers)


if __name__ == "__main__":
    if "RANK" in os.environ:
        work(int(os.environ["RANK"]))
    else:
        sys.exit(start())
