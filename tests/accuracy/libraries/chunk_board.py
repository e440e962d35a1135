# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD305"]
# culprits = [0]
# culprits_any = [[2], [0, 2]]
# lines = [37, 46, 48, 59, 61, 62]
# branch = ["range(count)", "range(self.index", "rank==0"]
# source = "https://github.com/PaddlePaddle/Paddle/pull/44964"
# ///
"""Rank 0 posts chunks of a table on a board (a key-value store); the others take theirs in turn and report sums."""
import logging
import math
import os
import pickle
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist

log = logging.getLogger("board")


class Board:
    """Keys of one table: chunk/N holds pickled rows, meta/rows their number."""

    def __init__(self, store, name):
        self.store = dist.PrefixStore(f"board/{name}", store)
        self.store.set_timeout(timedelta(minutes=20))

    def post(self, key, value):
        self.store.set(key, pickle.dumps(value))

    def take(self, key):
        return pickle.loads(self.store.get(f"{key}"))


class Producer:
    def __init__(self, board, rows, chunk):
        self.board, self.chunk = board, chunk
        self.table = np.random.default_rng(3).normal(size=(rows, 8)).astype("float32")

    def run(self):
        count = len(self.table) // self.chunk
        self.board.post("meta/rows", len(self.table))
        for number in range(count):
            self.board.post(f"chunk/{number}", self.table[number * self.chunk:(number + 1) * self.chunk])
        log.info("posted %d chunks", count)
        return 0.0


class Consumer:
    def __init__(self, board, index, consumers, chunk):
        self.board, self.index, self.consumers, self.chunk = board, index, consumers, chunk

    def run(self):
        total = math.ceil(self.board.take("meta/rows") / self.chunk)
        result = 0.0
        for number in range(self.index, total, self.consumers):
            rows = self.board.take(f"chunk/{number}")
            result += float(rows.sum())
        log.info("consumer %d is through", self.index)
        return result


def open_store():
    return dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False,
                         timeout=timedelta(minutes=20), wait_for_workers=False)


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    board = Board(open_store(), "measurements")
    chunk = 128
    if rank == 0:
        worker = Producer(board, rows=16 * chunk + 75, chunk=chunk)
    else:
        worker = Consumer(board, rank - 1, world - 1, chunk)
    result = torch.tensor(worker.run())
    dist.all_reduce(result)
    if rank == 0:
        log.info("sum of all rows %.3f", result.item())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
