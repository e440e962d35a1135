"""One rank of a three-dimensional mesh leaves out the norm of its gradients.

Eight ranks: pipeline, data parallel and tensor parallel by two each. Before it clips, each rank reduces the squared
norm of its shard within its tensor-parallel group. On one rank the gradients overflowed; it skips the step before that
reduction. Its neighbour waits there, and everybody else in what comes after it.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 8"
# outcome = "hang"
# culprits = [6]
# cause = "HD101"
# branch = ["if self.overflowed(gradient):"]
# mesh = { pp = 2, dp = 2, tp = 2 }
# replicas = "dp"
# ///

import math
import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

FIXED = os.environ.get("FIXED") == "1"
MOST = 1e4


class Scaler:
    def __init__(self, place):
        self.scale = 2.0**8
        self.place = place
        self.skipped = 0

    def gradient(self, step):
        gradient = torch.full((16,), 0.01 * (step + 1) * self.scale)
        if self.place == (1, 1, 0) and step == 5 and not FIXED:
            gradient[10] = float("inf")
        return gradient

    def update(self, good):
        if good:
            self.scale *= 1.01
        else:
            self.scale /= 2
            self.skipped += 1


class Stage:
    def __init__(self, mesh):
        self.pp, self.dp, self.tp = (mesh.get_group(name) for name in ("pp", "dp", "tp"))
        self.first = mesh.get_local_rank("pp") == 0
        self.peer = dist.get_global_rank(self.pp, 1 if self.first else 0)
        self.scaler = Scaler(tuple(mesh.get_local_rank(name) for name in ("pp", "dp", "tp")))
        self.weights = torch.zeros(16)

    def overflowed(self, gradient):
        return not math.isfinite(float(gradient.abs().max()))

    def exchange(self, step):
        activations = torch.full((4,), float(step))
        if self.first:
            dist.send(activations, self.peer, group=self.pp)
        else:
            dist.recv(activations, self.peer, group=self.pp)
        dist.all_reduce(activations, group=self.tp)

    def clip(self, gradient):
        squared = gradient.square().sum()
        dist.all_reduce(squared, group=self.tp)
        norm = float(squared.sqrt())
        return gradient * (MOST / norm) if norm > MOST else gradient

    def step(self, step):
        self.exchange(step)
        gradient = self.scaler.gradient(step)
        dist.all_reduce(gradient[:4], group=self.dp)
        if self.overflowed(gradient):
            self.scaler.update(good=False)
            return
        self.weights -= 1e-3 * self.clip(gradient)
        self.scaler.update(good=True)


def main():
    torch.set_num_threads(1)
    mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("pp", "dp", "tp"))
    stage = Stage(mesh)
    for step in range(9):
        stage.step(step)
    done = torch.ones(())
    dist.all_reduce(done)
    if dist.get_rank() == 0:
        print("ranks done", int(done))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
