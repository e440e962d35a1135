"""Rank 0 holds a lock over a collective, and the thread that answers rank 1 needs it.

Rank 1 asks over a unix socket, whose other end only the kernel's socket diagnostics show.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# outcome = "hang"
# cause = "HD505"
# culprits = [0]
# lines = [62]
# code = ["dist.all_reduce(weights)  # under the lock"]
# source = "constructed"
# ///

import os
import socket
import tempfile
import threading
import time

import torch
import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"
LOCK = threading.Lock()


def serve(listener):
    link, _ = listener.accept()
    while link.recv(1):
        with LOCK:  # to answer
            link.sendall(b"k")


def listen(path):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    threading.Thread(target=serve, args=(listener,), name="server", daemon=True).start()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    path = [os.path.join(tempfile.mkdtemp(prefix="locked-"), "s")]
    dist.broadcast_object_list(path, src=0)
    link = socket.socket(socket.AF_UNIX)
    if rank == 0:
        listen(path[0])
    dist.barrier()
    if rank == 1:
        link.connect(path[0])
    weights = torch.ones(16)
    for step in range(6):
        if rank == 1:
            time.sleep(0.5)
            link.sendall(b"n")
            link.recv(1)
        if rank == 0 and step == 3 and not FIXED:
            with LOCK:
                dist.all_reduce(weights)  # under the lock
        else:
            dist.all_reduce(weights)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
