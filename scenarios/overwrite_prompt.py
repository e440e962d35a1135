"""The program asks a question, and under a launcher nobody can answer.

Before rank 0 writes into an existing folder it asks whether it may. By hand, with one process, that was
fine. Here its standard input is a pipe that nobody writes into, and the other rank waits in the barrier.
"""

# /// hangdoc
# launch = "python"
# outcome = "hang"
# cause = "HD405"
# culprits = [0]
# lines = [31]
# code = ["return input(f\"{folder} exists, overwrite it? [y/n] \") == \"y\""]
# source = "constructed"
# ///

import os
import socket
import subprocess
import sys

import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"
WORLD_SIZE = 2


def may_write(folder):
    if FIXED:
        return True
    return input(f"{folder} exists, overwrite it? [y/n] ") == "y"


def work(rank):
    dist.init_process_group("gloo")
    if rank == 0 and may_write("results"):
        print("writing")
    dist.barrier()
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
        workers.append(subprocess.Popen([sys.executable, __file__], env=environment, stdin=subprocess.PIPE))
    return max(worker.wait() for worker in workers)


if __name__ == "__main__":
    if "RANK" in os.environ:
        work(int(os.environ["RANK"]))
    else:
        sys.exit(start())
