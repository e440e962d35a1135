# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# watch = "--give-up-after 10"
# outcome = "healthy"
# source = "https://github.com/mosaicml/llm-foundry/pull/716"
# ///
"""Rank 0 makes its features in a pool of two children that compute for half a minute; the other waits in a broadcast."""
import multiprocessing
import time

import torch
import torch.distributed as dist


def work(i):
    end, n = time.monotonic() + 14, 0
    while time.monotonic() < end:
        n += sum(k * k for k in range(2000))
    return float(n % 7)


class Store:
    def build(self):
        with multiprocessing.get_context("fork").Pool(2) as pool:
            return torch.tensor(pool.map(work, range(4), chunksize=1))


def main():
    dist.init_process_group("gloo")
    table = Store().build() if dist.get_rank() == 0 else torch.zeros(4)
    dist.broadcast(table, 0)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
