"""One rank waits for a file that nobody writes; all others wait for it.

Eight ranks in a mesh of three dimensions. Tensor-parallel ranks take turns in unpacking shards of the data; the rank
whose manifest lists its shard under another name looks for a file that will never be there.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 8"
# outcome = "hang"
# culprits = [3]
# branch = ["while not os.path.exists(path):"]
# mesh = { pp = 2, dp = 2, tp = 2 }
# replicas = "dp"
# ///

import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

FIXED = os.environ.get("FIXED") == "1"
FOLDER = os.path.join(tempfile.gettempdir(), f"shards-{os.environ.get('TORCHELASTIC_RUN_ID', '0')}")


def manifest(place):
    name = "-".join(map(str, place))
    return f"shard-{name}.bin" if place != (0, 1, 1) or FIXED else f"shard_{name}.bin"


class Shards:
    def __init__(self, mesh):
        self.place = tuple(mesh.get_local_rank(name) for name in ("pp", "dp", "tp"))
        self.tp = mesh.get_group("tp")

    def unpack(self):
        os.makedirs(FOLDER, exist_ok=True)
        if self.place[2] == 0:
            for number in range(2):
                path = os.path.join(FOLDER, "shard-" + "-".join(map(str, (*self.place[:2], number))) + ".bin")
                with open(path, "w") as file:
                    file.write("data")

    def find(self):
        path = os.path.join(FOLDER, manifest(self.place))
        while not os.path.exists(path):
            time.sleep(0.2)
        return path


def main():
    torch.set_num_threads(1)
    mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("pp", "dp", "tp"))
    shards = Shards(mesh)
    dist.barrier()
    shards.unpack()
    shards.find()
    total = torch.ones(())
    dist.all_reduce(total, group=shards.tp)
    dist.all_reduce(total, group=mesh.get_group("dp"))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
