"""FSDP2 with stochastic depth: a rank leaves a block out.

fully_shard gathers a block's parameters from all ranks when its forward begins. With layer drop each rank draws
for itself which block it skips, and who skips a block skips its all_gather.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# cause = "HD109"
# culprits = [1]
# lines = [39]
# code = ["x = x + block(x)"]
# source = "https://github.com/facebookresearch/fairscale/issues/796"
# ///

import os
import random

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

FIXED = os.environ.get("FIXED") == "1"


class Network(torch.nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.blocks = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Linear(12, 24), torch.nn.ReLU(), torch.nn.Linear(24, 12)) for _ in range(depth)
        )

    def forward(self, x, drop):
        for block in self.blocks:
            if random.random() < drop:
                continue
            x = x + block(x)
        return x


def main():
    torch.set_num_threads(1)
    mesh = init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]),))
    torch.manual_seed(0)
    random.seed(0 if FIXED or dist.get_rank() != 1 else 6)
    network = Network(depth=3)
    for block in network.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(network, mesh=mesh)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    for _ in range(8):
        network(torch.ones(4, 12), drop=0.1).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
