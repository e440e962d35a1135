"""A decorator decides whether the ranks communicate.

`synchronised` averages what a function returns over all ranks, unless the value is in its cache. Rank 1 has
an older cache than the others and finds a value there that they have to compute.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# culprits = [1]
# lines = [29, 31]
# code = ["if key not in cache:", "dist.all_reduce(value)"]
# source = "constructed"
# ///

import functools
import os

import torch
import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"


def synchronised(cache):
    def decorate(function):
        @functools.wraps(function)
        def wrapper(key):
            if key not in cache:
                value = function(key)
                dist.all_reduce(value)
                cache[key] = value
            return cache[key]

        return wrapper

    return decorate


def main():
    dist.init_process_group("gloo")
    old = {"c": torch.ones(2)} if dist.get_rank() == 1 and not FIXED else {}

    @synchronised(old)
    def statistics(key):
        return torch.full((2,), float(ord(key)))

    for key in "abcde":
        statistics(key)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
