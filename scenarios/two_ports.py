"""Two halves of a job meet at two addresses.

Each rank takes the port of the rendezvous from its own settings, and one of them was started from a shell
with an old value. Ranks 0 and 1 look at one port, rank 2 at another, where nobody listens: it tries to
connect, again and again, while the others wait for it.
"""

# /// hangdoc
# launch = "python"
# outcome = "hang"
# cause = "HD302"
# culprits = [2]
# lines = [31]
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


def work():
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(4))
    dist.destroy_process_group()


def free_ports(count):
    listeners = [socket.socket() for _ in range(count)]
    for listener in listeners:
        listener.bind(("127.0.0.1", 0))
    ports = [str(listener.getsockname()[1]) for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


def start():
    port, old = free_ports(2)
    workers = []
    for rank in range(WORLD_SIZE):
        settings = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(WORLD_SIZE), "RANK": str(rank)}
        if rank == 2 and not FIXED:
            settings["MASTER_PORT"] = old
        workers.append(subprocess.Popen([sys.executable, __file__], env=os.environ | settings))
    return max(worker.wait() for worker in workers)


if __name__ == "__main__":
    if "RANK" in os.environ:
        work()
    else:
        sys.exit(start())
