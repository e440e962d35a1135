# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["datasets"]
# outcome = "healthy"
# watch = "--give-up-after 10"
# source = "own"
# ///
"""The first rank searches a good cut for every group of a data set with two helper processes; then all ranks fit."""
import hashlib
import logging
import os
import random
import tempfile
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")

import torch
import torch.distributed as dist

log = logging.getLogger("cuts")
GROUPS = 140
BUDGET = 0.25


def search_cut(example):
    """An anytime search: as many random cuts as the time allows."""
    rng = random.Random(example["group"])
    values, best, best_gain = example["values"], 0.5, -1.0
    end = time.monotonic() + BUDGET
    while time.monotonic() < end:
        cut = rng.random()
        low = [v for v in values if v < cut]
        high = [v for v in values if v >= cut]
        if low and high:
            gain = abs(sum(low) / len(low) - sum(high) / len(high))
            if gain > best_gain:
                best, best_gain = cut, gain
    digest = hashlib.md5(repr(values).encode()).hexdigest()
    return {"cut": best, "digest": digest}


def prepare(base):
    import datasets

    rng = random.Random(0)
    rows = [{"group": g, "values": [rng.random() for _ in range(50)]} for g in range(GROUPS)]
    table = datasets.Dataset.from_list(rows)
    table = table.map(search_cut, num_proc=2, load_from_cache_file=False)
    table.save_to_disk(os.path.join(base, "cuts"))
    log.info("cuts of %d groups stored", len(table))


def load(base, rank, world):
    import datasets

    table = datasets.load_from_disk(os.path.join(base, "cuts"))
    mine = table.shard(world, rank)
    return torch.tensor([[row["cut"], sum(row["values"]) / 50] for row in mine])


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    base = os.path.join(os.environ.get("TMPDIR", tempfile.gettempdir()), f"cuts-{os.getppid()}")
    if rank == 0:
        os.makedirs(base, exist_ok=True)
        prepare(base)
    dist.barrier()
    data = load(base, rank, world)
    slope = torch.zeros(1)
    for step in range(40):
        error = data[:, :1] * slope - data[:, 1:]
        grad = (error * data[:, :1]).sum(0)
        count = torch.tensor(float(len(data)))
        dist.all_reduce(grad)
        dist.all_reduce(count)
        slope -= 0.5 * grad / count
    if rank == 0:
        log.info("slope %.4f", slope.item())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
