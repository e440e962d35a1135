# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = ["datasets", "transformers"]
# watch = "--give-up-after 10"
# outcome = "healthy"
# source = "https://github.com/huggingface/trl/pull/3106"
# ///
"""Rank 0 runs Dataset.map(num_proc=2) for half a minute inside a main-process-first block, the other waits for it."""
import contextlib
import time

import torch.distributed as dist
from datasets import Dataset


@contextlib.contextmanager
def main_process_first():
    if dist.get_rank() != 0:
        dist.barrier()
    try:
        yield
    finally:
        if dist.get_rank() == 0:
            dist.barrier()


def tokenize(row):
    end = time.monotonic() + 0.35
    n = 0
    while time.monotonic() < end:
        n += sum(ord(c) for c in row["text"] * 50)
    return {"n": n}


def main():
    dist.init_process_group("gloo")
    with main_process_first():
        rows = Dataset.from_dict({"text": [f"text {i}" for i in range(160 if dist.get_rank() == 0 else 4)]})
        rows.map(tokenize, num_proc=2 if dist.get_rank() == 0 else None)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
