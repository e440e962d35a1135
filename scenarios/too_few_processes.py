"""A launcher of one's own starts two of three ranks.

The start-up script keeps the world size in one place and the list of workers in another, and they no longer
agree: it starts ranks 0 and 1 and tells both that there are three. Both wait in init_process_group for a
rank 2 that no process carries.
"""

# /// hangdoc
# launch = "python"
# outcome = "hang"
# cause = "HD301"
# culprits = [2]
# lines = [32]
# code = ["dist.init_process_group(\"gloo\")"]
# source = "constructed"
# ///

import os
import socket
import subprocess
import sys

import torch
import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"
WORLD_SIZE = 3
WORKERS = [0, 1, 2] if FIXED else [0, 1]


def work():
    dist.init_process_group("gloo")
    value = torch.ones(4)
    dist.all_reduce(value)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def start():
    job = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(WORLD_SIZE)}
    workers = []
    for rank in WORKERS:
        environment = os.environ | job | {"RANK": str(rank)}
        workers.append(subprocess.Popen([sys.executable, __file__], env=environment))
    return max(worker.wait() for worker in workers)


if __name__ == "__main__":
    if "RANK" in os.environ:
        work()
    else:
        sys.exit(start())
