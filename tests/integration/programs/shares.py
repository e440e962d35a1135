"""A short job that fails on rank 1 where there are only two ranks."""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
time.sleep(2)  # long enough to be seen
dist.all_reduce(torch.ones(1))
if dist.get_world_size() == 2 and dist.get_rank() == 1:
    raise LookupError("no share")
dist.barrier()
dist.destroy_process_group()
