"""Somebody attaches gdb to rank 1, looks around for a while and goes away again."""

import os
import subprocess
import time

import torch
import torch.distributed as dist

LOOK = ["gdb", "-nx", "-batch", "-ex", "shell sleep 13", "-p"]


def work_until_held(patience):
    """Until so much time has passed between two steps that somebody must have held us, or ``patience`` is over."""
    started = before = time.monotonic()
    while (now := time.monotonic()) - before < 5 and now - started < patience:
        before = now
        time.sleep(0.01)


dist.init_process_group("gloo")
rank = dist.get_rank()
others_pid = torch.tensor([os.getpid()])
dist.broadcast(others_pid, src=1)
if rank == 0:
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([*LOOK, str(others_pid.item())], **quiet):
        dist.barrier()
    print("well ended")
else:
    work_until_held(40)
    dist.barrier()
dist.destroy_process_group()
