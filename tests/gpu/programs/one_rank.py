"""One rank on one device, which never gets to the end of its stream.

    one_rank.py kernel|copy|time-out

kernel: a collective is queued behind a kernel that never ends, and the CPU waits for the device.
copy: the CPU waits for a copy to it that is queued behind the kernel.
time-out: as kernel, with a time-out after which PyTorch's watchdog leaves a dump and ends the process.
"""

import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

FOR_EVER = 1 << 60
"""Cycles: some ten years."""


def main(way):
    """Some calls that complete, and one behind the kernel that never ends."""
    seconds = float(os.environ["HANG_SECONDS"]) if way == "time-out" else 3600.0
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", timeout=timedelta(seconds=seconds), device_id=torch.device("cuda:0"))
    numbers = torch.ones(1024, device="cuda")
    for _ in range(3):
        dist.all_reduce(numbers)
    torch.cuda.synchronize()
    torch.cuda._sleep(FOR_EVER)
    if way == "copy":
        numbers.sum().item()
    dist.all_reduce(numbers)
    torch.cuda.synchronize()


main(sys.argv[1])
