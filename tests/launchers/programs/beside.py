"""A rank that notes its arguments, talks once and ends; with HANGS, rank 1 calls a barrier too many."""

import json
import os
import sys

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
with open(os.path.join(os.environ["NOTES"], f"{rank}.json"), "w") as file:
    json.dump([sys.argv[1:], [word for word in sys.orig_argv[1:] if "hangdoc" in word]], file)
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(2))
if rank == 1 and os.environ.get("HANGS"):
    dist.barrier()
dist.all_reduce(torch.ones(3))
dist.destroy_process_group()
print(f"rank {rank} is done\n", end="", flush=True)  # in one piece: another rank writes there as well
