"""DTensor: rank 0 prints the norm of a weight that is sharded.

`full_tensor()` reads like a conversion. It gathers the shards of all ranks.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# cause = "HD109"
# culprits = [0]
# lines = [28]
# code = ["norm = weight.full_tensor().norm()"]
# source = "https://github.com/areal-project/AReaL/pull/187"
# ///

import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

FIXED = os.environ.get("FIXED") == "1"


def report(step, weight):
    if dist.get_rank() == 0 or FIXED:
        norm = weight.full_tensor().norm()
        print(f"step {step}: norm {float(norm):.3f}")


def main():
    mesh = init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]),))
    torch.manual_seed(0)
    weight = distribute_tensor(torch.randn(12, 6), mesh, [Shard(0)])
    for step in range(6):
        weight = weight - 0.01 * weight.sum().full_tensor()
        if step == 3:
            report(step, weight)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
