# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "healthy"
# ///
"""A parameter server over RPC whose trainers have long phases of their own; it only answers when somebody asks."""
import argparse
import logging
import os
import threading
import time

import torch
import torch.distributed.rpc as rpc

log = logging.getLogger("ps")


class Table:
    """Embedding rows on the server."""

    instance = None

    def __init__(self, rows, width):
        self.weight = torch.zeros(rows, width)
        self.lock = threading.Lock()
        self.pulls = self.pushes = 0
        Table.instance = self

    @staticmethod
    def pull(rows):
        with Table.instance.lock:
            Table.instance.pulls += 1
            return Table.instance.weight[rows].clone()

    @staticmethod
    def push(rows, gradient):
        with Table.instance.lock:
            Table.instance.pushes += 1
            Table.instance.weight.index_add_(0, rows, gradient, alpha=-0.1)


class Simulator:
    """Collects experience outside of the job: nothing is communicated meanwhile."""

    def __init__(self, index, seconds):
        self.generator = torch.Generator().manual_seed(index)
        self.seconds = seconds

    def collect(self, rows):
        time.sleep(self.seconds)
        return torch.randint(0, rows, (40, 8), generator=self.generator)


def train(index, args):
    simulator = Simulator(index, args.collect_seconds + 2 * index)
    target = torch.ones(args.width)
    for phase in range(args.phases):
        for rows in simulator.collect(args.rows):
            values = rpc.rpc_sync("server", Table.pull, args=(rows,))
            rpc.rpc_sync("server", Table.push, args=(rows, values - target))
        log.info("phase %d over", phase)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--phases", type=int, default=2)
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--collect-seconds", type=float, default=11.0)
    args = parser.parse_args()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    logging.basicConfig(level=logging.INFO, format=f"[{rank}] %(message)s")
    options = rpc.TensorPipeRpcBackendOptions(rpc_timeout=600)
    if rank == 0:
        Table(args.rows, args.width)
    rpc.init_rpc("server" if rank == 0 else f"trainer{rank}", rank=rank, world_size=world, rpc_backend_options=options)
    if rank > 0:
        train(rank - 1, args)
    rpc.shutdown(timeout=600)
    if rank == 0:
        log.info("%d pulls, %d pushes", Table.instance.pulls, Table.instance.pushes)


if __name__ == "__main__":
    main()
