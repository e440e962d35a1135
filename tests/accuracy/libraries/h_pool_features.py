# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = ["torch"]
# watch = "--give-up-after 10"
# outcome = "healthy"
# source = "https://github.com/huggingface/datasets/issues/4113"
# ///
"""Rank 1 computes features in a concurrent.futures.ProcessPoolExecutor (spawn) for 40 seconds and waits for the results;
rank 0 has none to compute and waits in all_gather_object."""
import multiprocessing as mp
import time
from concurrent.futures import ProcessPoolExecutor


def feature(task):
    end, value = time.monotonic() + 1.9, task
    while time.monotonic() < end:
        value = (value * 1103515245 + 12345) % 2147483648
    return value


def features(tasks):
    with ProcessPoolExecutor(2, mp_context=mp.get_context("spawn")) as pool:
        return list(pool.map(feature, range(tasks)))


def main():
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    mine = features(28) if rank == 1 else []
    everything = [None] * dist.get_world_size()
    dist.all_gather_object(everything, mine)
    print(rank, sum(map(len, everything)))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
