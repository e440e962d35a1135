"""Somebody attaches gdb to rank 1, looks around for a while and goes away again."""

import os
import subprocess
from pathlib import Path

import torch
import torch.distributed as dist

LOOK = ["gdb", "-nx", "-batch", "-ex", "shell sleep 9", "-p"]

dist.init_process_group("gloo")
rank = dist.get_rank()
others_pid = torch.tensor([os.getpid()])
dist.broadcast(others_pid, src=1)
quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
debugger = subprocess.Popen([*LOOK, str(others_pid.item())], **quiet) if rank == 0 else None
if debugger is None:
    while "TracerPid:\t0\n" in Path("/proc/self/status").read_text():
        pass
else:
    debugger.wait()
dist.barrier()
if rank == 0:
    print("well ended")
dist.destroy_process_group()
