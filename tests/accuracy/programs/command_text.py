"""The program is a text on the command line: python -c.

Each rank runs `python -c`, so all of its frames are in '<string>' and no source can be read. Rank 1 counts
one epoch less than the others.
"""

# /// hangdoc
# launch = "python"
# outcome = "hang"
# culprits = [1]
# file = "<string>"
# lines = [6, 7, 9]
# source = "constructed"
# ///

import os
import socket
import subprocess
import sys

FIXED = os.environ.get("FIXED") == "1"
PROGRAM = """
import sys, torch, torch.distributed as dist

def main(epochs):
    dist.init_process_group("gloo")
    for epoch in range(epochs):
        dist.all_reduce(torch.ones(4))
        dist.broadcast(torch.ones(4), src=0)
    dist.barrier()
    dist.destroy_process_group()

main(int(sys.argv[1]))
"""


def main():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = str(listener.getsockname()[1])
    job = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "3"}
    ranks = []
    for rank in range(3):
        epochs = "4" if rank == 1 and not FIXED else "5"
        environment = os.environ | job | {"RANK": str(rank)}
        ranks.append(subprocess.Popen([sys.executable, "-c", PROGRAM, epochs], env=environment))
    return max(rank.wait() for rank in ranks)


if __name__ == "__main__":
    sys.exit(main())
