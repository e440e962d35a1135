"""A rank of the mesh ends with status 0 while the others train on.

Eight ranks, two stages of four replicas. A replica whose part of the data is empty has nothing to do, so one of its
ranks returns from main; torchrun takes status 0 for success, and the others wait.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 8"
# outcome = "crashed"
# culprits = [2]
# branch = ["if not files:"]
# mesh = { dp = 4, pp = 2 }
# replicas = "dp"
# ///

import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

FIXED = os.environ.get("FIXED") == "1"
ALL = [f"part-{number:02d}" for number in range(3 if not FIXED else 8)]


def files_of(replica, stage):
    # The second stage reads labels only, which lie in one file.
    return ["labels"] if stage == 1 else [name for name in ALL if int(name[-1]) % 4 == (replica + 2) % 4]


def train(mesh, files):
    gradient = torch.ones(4)
    for _ in range(5):
        for group in ("pp", "dp"):
            dist.all_reduce(gradient, group=mesh.get_group(group))
    return len(files)


def main():
    torch.set_num_threads(1)
    mesh = init_device_mesh("cpu", (4, 2), mesh_dim_names=("dp", "pp"))
    dist.barrier()
    files = files_of(mesh.get_local_rank("dp"), mesh.get_local_rank("pp"))
    if not files:
        return
    train(mesh, files)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
