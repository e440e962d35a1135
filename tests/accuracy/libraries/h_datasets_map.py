# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = ["datasets"]
# watch = "--give-up-after 10"
# outcome = "healthy"
# source = "https://github.com/huggingface/datasets/pull/2298"
# ///
"""Rank 0 maps a slow tokenizer over a data set with num_proc=2 for some 35 seconds, its own process sleeping in the pool;
rank 1 waits in the barrier as the documentation says.  Nothing is wrong."""
import os
import tempfile
import time

import torch
import torch.distributed as dist
from datasets import Dataset, disable_progress_bars

disable_progress_bars()


def slow_tokenize(row):
    end = time.monotonic() + 0.14
    total = 0
    while time.monotonic() < end:
        total = (total * 31 + len(row["text"])) % 1000003
    return {"ids": [total % 97, row["i"] % 97]}


def prepare(rank, folder):
    path = os.path.join(folder, "mapped")
    if rank == 0:
        rows = Dataset.from_dict({"text": [f"text {i}" for i in range(300)], "i": list(range(300))})
        rows.map(slow_tokenize, num_proc=2).save_to_disk(path)
    dist.barrier()
    return Dataset.load_from_disk(path)


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    folder = os.path.join(tempfile.gettempdir(), "map-" + os.environ["TORCHELASTIC_RUN_ID"])
    os.makedirs(folder, exist_ok=True)
    rows = prepare(dist.get_rank(), folder)
    total = torch.tensor(float(sum(sum(r["ids"]) for r in rows)))
    dist.all_reduce(total)
    print("total", total.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
