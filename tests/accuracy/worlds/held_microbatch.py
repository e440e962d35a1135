"""A stage of one pipeline holds a micro-batch back and does not pass it on.

Eight ranks: two replicas of a pipeline of four stages. Stage 1 of the second replica keeps a micro-batch that looks
like one it has seen; the stages below wait for it, and the other replica for their gradients.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 8"
# outcome = "hang"
# culprits = [5]
# branch = ["if self.seen_before(activations):"]
# mesh = { dp = 2, pp = 4 }
# replicas = "dp"
# ///

import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

FIXED = os.environ.get("FIXED") == "1"
MICRO = 4


class Stage:
    def __init__(self, mesh):
        self.dp, self.pp = mesh.get_group("dp"), mesh.get_group("pp")
        self.number = mesh.get_local_rank("pp")
        self.replica = mesh.get_local_rank("dp")
        self.last = 3
        self.seen = set()
        self.weight = torch.ones(())

    def neighbour(self, by):
        return dist.get_global_rank(self.pp, self.number + by)

    def seen_before(self, activations):
        if self.number != 1 or FIXED:
            return False
        key = round(float(activations.sum()), 3)
        if key in self.seen:
            return True
        self.seen.add(key)
        return False

    def sample(self, step, micro):
        if self.replica == 1 and step == 3 and micro >= 2:
            step, micro = 2, 1
        return torch.full((4,), step * MICRO + micro + 0.25)

    def run(self, step, micro):
        if self.number == 0:
            activations = self.sample(step, micro)
        else:
            activations = torch.empty(4)
            dist.recv(activations, self.neighbour(-1), group=self.pp)
        if self.seen_before(activations):
            return
        activations = activations + self.number
        if self.number < self.last:
            dist.send(activations, self.neighbour(+1), group=self.pp)

    def update(self):
        gradient = self.weight.clone()
        dist.all_reduce(gradient, group=self.dp)
        self.weight -= 1e-3 * gradient


def main():
    torch.set_num_threads(1)
    mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "pp"))
    stage = Stage(mesh)
    for step in range(6):
        for micro in range(MICRO):
            stage.run(step, micro)
        stage.update()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
