"""Two ranks that share the first device.

    two_ranks.py healthy|skip|operation|behind-a-kernel

NCCL refuses two ranks on one device of one host; each gives itself another host here, over plain sockets. The calls
are asynchronous to the CPU: rank 1's fault lies in step 3, while rank 0 stands in synchronize() at the end.
"""

import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

RANK = int(os.environ["RANK"])
os.environ["NCCL_HOSTID"] = f"host-of-rank-{RANK}"
os.environ.update(NCCL_P2P_DISABLE="1", NCCL_SHM_DISABLE="1", NCCL_IB_DISABLE="1", NCCL_SOCKET_IFNAME="lo")


def step(way, number, numbers):
    """One step; rank 1's third one is wrong."""
    wrong = RANK == 1 and number == 3
    if wrong and way == "skip":
        return
    if wrong and way == "operation":
        dist.broadcast(numbers, 0)
        return
    if wrong and way == "behind-a-kernel":
        torch.cuda._sleep(1 << 60)
    dist.all_reduce(numbers)


def main(way):
    """Six steps, and a look at the result."""
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", timeout=timedelta(seconds=float(os.environ["HANG_SECONDS"])))
    numbers = torch.ones(1024, device="cuda")
    for number in range(6):
        step(way, number, numbers)
    torch.cuda.synchronize()
    print("rank", RANK, "is done", flush=True)
    if way != "healthy":
        time.sleep(600)  # who is through stays, and leaves a dump when the other's call times out
    dist.destroy_process_group()


main(sys.argv[1])
