"""Two ranks of a healthy job that stands still five times, each time for another good reason, and goes on."""

import atexit
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

SECONDS = float(os.environ.get("PAUSE", "9"))


class Slow(Dataset):
    """Rank 1's first sample takes long to come."""

    def __len__(self):
        return 2

    def __getitem__(self, index):
        if rank == 1 and index == 0:
            time.sleep(SECONDS)
        return torch.full((6,), float(index))


def work(seconds):
    end = time.monotonic() + seconds
    total = 0
    while time.monotonic() < end:
        total += 1
    return total


def first_batch(model):
    for batch in DataLoader(Slow(), num_workers=1):
        model(batch).sum().backward()


def accumulate(model):
    with model.no_sync():
        for _ in range(5):
            work(SECONDS / 5)
            model(torch.ones(1, 6)).sum().backward()
    model(torch.ones(1, 6)).sum().backward()


def validate(model):
    if rank == 0:
        work(SECONDS)
    dist.barrier()


def rest_between_rounds(model):
    time.sleep(SECONDS)
    dist.barrier()


def write_summary():
    time.sleep(SECONDS)


dist.init_process_group("gloo")
rank = dist.get_rank()
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # both on one processor: the others are for those who watch
replica = DistributedDataParallel(torch.nn.Linear(6, 2))
for phase in (first_batch, accumulate, validate, rest_between_rounds):
    phase(replica)
dist.destroy_process_group()
if rank == 0:
    print("well ended", flush=True)
else:
    atexit.register(write_summary)
