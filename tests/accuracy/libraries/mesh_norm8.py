# /// hangdoc
# launch = "python"
# requires = []
# outcome = "hang"
# cause = "HD109"
# culprits = [4]
# lines = [37, 38, 75]
# branch = ["is_logger", "coordinate", "stage == 0"]
# source = "https://github.com/meta-pytorch/torchtune/pull/2248"
# ///
"""Eight ranks in a 2x2x2 mesh; the rank that writes the console log makes the gradient norm whole before it writes.
DTensor.full_tensor() reduces over the tensor-parallel pair; its neighbour does not write, and so does not reduce."""
import os
import socket
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, distribute_tensor, Shard


class Logger:
    def __init__(self, mesh, every=3):
        self.mesh, self.every = mesh, every
        self.coordinate = mesh.get_coordinate()
        self.file = open(os.path.join(tempfile.gettempdir(), f"log-{dist.get_rank()}"), "w")

    def is_logger(self):
        replica, stage, part = self.coordinate
        return stage == 0 and part == 0 and replica == 1

    def log(self, step, norm):
        value = norm
        if step % self.every == 0 and self.is_logger():
            value = norm.full_tensor()
        self.file.write(f"{step} {value}\n")


class Model:
    """One column-parallel weight and data-parallel gradients, by hand."""

    def __init__(self, mesh):
        self.mesh = mesh
        torch.manual_seed(3)
        self.weight = torch.randn(8, 4)

    def step(self, step):
        grad = self.weight * 0.01 * (step + 1)
        dist.all_reduce(grad, group=self.mesh.get_group("dp"))
        self.weight -= grad
        local = grad.norm().square()
        return DTensor.from_local(local, self.mesh["tp"], [Partial()])


class Stages:
    def __init__(self, mesh):
        self.mesh = mesh

    def exchange(self, x):
        out = [torch.zeros_like(x) for _ in range(2)]
        dist.all_gather(out, x, group=self.mesh.get_group("tp"))
        return torch.cat(out)


def worker(rank, world):
    dist.init_process_group("gloo", rank=rank, world_size=world)
    mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("dp", "pp", "tp"))
    model, stages, logger = Model(mesh), Stages(mesh), Logger(mesh)
    for step in range(1, 20):
        stages.exchange(torch.ones(3))
        norm = model.step(step)
        logger.log(step, norm)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(s.getsockname()[1]))
    mp.start_processes(worker, args=(8,), nprocs=8, start_method="fork")
