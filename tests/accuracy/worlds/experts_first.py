"""One rank reduces over its two groups in the other order.

Eight ranks, data parallel by four, expert parallel by two. Who has many tokens left over balances its experts before it
reduces the gradients of the dense layers over all ranks, which saves memory. On one rank that is so at step 4; it then
waits for the other member of its expert group, which waits for it among all ranks.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 8"
# outcome = "hang"
# culprits = [2]
# cause = "HD107"
# branch = ["if left > self.room:"]
# mesh = { dp = 4, ep = 2 }
# replicas = "dp"
# ///

import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

FIXED = os.environ.get("FIXED") == "1"


class Layer:
    def __init__(self, mesh):
        self.ep = mesh.get_group("ep")
        self.place = mesh.get_local_rank("dp"), mesh.get_local_rank("ep")
        self.room = 12
        self.load = torch.zeros(2)
        self.gradient = torch.ones(32)

    def left_over(self, step):
        if self.place == (1, 0) and step == 4 and not FIXED:
            return 17
        return 3 + (step + self.place[0]) % 5

    def balance(self):
        dist.all_reduce(self.load, group=self.ep)

    def reduce(self):
        dist.all_reduce(self.gradient)

    def step(self, step):
        left = self.left_over(step)
        self.load[self.place[1]] += left
        if left > self.room:
            self.balance()
            self.reduce()
        else:
            self.reduce()
            self.balance()


def main():
    torch.set_num_threads(1)
    mesh = init_device_mesh("cpu", (4, 2), mesh_dim_names=("dp", "ep"))
    layer = Layer(mesh)
    for step in range(8):
        layer.step(step)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
