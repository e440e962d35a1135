"""A driver whose ranks are daemons: they wait for its next order when it ends, and multiprocessing ends them then."""

import multiprocessing
import os
import sys
import time

import torch
import torch.distributed as dist


def serve(rank, port, orders):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, RANK=str(rank), WORLD_SIZE="2")
    dist.init_process_group("gloo")
    while True:
        dist.all_reduce(torch.ones(1))
        orders[rank].send("done")
        orders[rank].recv()


if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    ours, theirs = zip(context.Pipe(), context.Pipe(), strict=True)
    for rank in range(2):
        context.Process(target=serve, args=(rank, sys.argv[1], theirs), daemon=True).start()
    for pipe in ours:
        pipe.recv()
    time.sleep(4)  # a watch looks for ranks once a second
    print("well ended", flush=True)
    sys.exit(int(sys.argv[2]))
