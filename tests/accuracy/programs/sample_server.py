"""Rank 0 hands out samples from a thread, and its producer has no more.

The serving thread waits on its queue while rank 1 waits for a sample. Rank 0's main thread is innocent: it waits in
all_reduce for rank 1.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# watch = "--give-up-after 8"
# outcome = "hang"
# cause = "HD505"
# culprits = [0]
# lines = [33]
# code = ["link.sendall(bytes([samples.get()]))"]
# source = "constructed"
# ///

import os
import queue
import socket
import threading

import torch
import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"
STEPS = 12


def serve(listener, samples):
    link, _ = listener.accept()
    while link.recv(1):
        link.sendall(bytes([samples.get()]))


def produce():
    samples = queue.Queue()
    for number in range(STEPS if FIXED else STEPS // 2):
        samples.put(number)
    return samples


def main():
    dist.init_process_group("gloo")
    store = dist.distributed_c10d._get_default_store()
    rank, link = dist.get_rank(), None
    if rank == 0:
        listener = socket.create_server(("127.0.0.1", 0))
        store.set("port", str(listener.getsockname()[1]))
        threading.Thread(target=serve, args=(listener, produce()), name="server", daemon=True).start()
    else:
        link = socket.create_connection(("127.0.0.1", int(store.get("port"))))
    weights = torch.ones(16)
    for _ in range(STEPS):
        if link is not None:
            link.sendall(b"n")
            link.recv(1)
        dist.all_reduce(weights)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
