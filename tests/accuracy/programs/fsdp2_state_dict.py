"""FSDP2: rank 0 asks for the whole state, to save it.

get_model_state_dict with full_state_dict=True gathers every parameter from all ranks, and hands the result to
rank 0 only. That looks as if the other ranks had no part in it, and they wait until rank 0 has saved.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# cause = "HD109"
# culprits = [0]
# lines = [32]
# code = ["state = get_model_state_dict(network, options=options)"]
# source = "constructed"
# ///

import os
import tempfile

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

FIXED = os.environ.get("FIXED") == "1"


def save(network, step):
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    if dist.get_rank() == 0 or FIXED:
        state = get_model_state_dict(network, options=options)
        if dist.get_rank() == 0:
            torch.save(state, os.path.join(tempfile.mkdtemp(prefix="state-"), f"{step}.pt"))
    dist.barrier()


def main():
    torch.set_num_threads(1)
    mesh = init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]),))
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(12, 24), torch.nn.ReLU(), torch.nn.Linear(24, 12))
    for layer in (network[0], network[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(network, mesh=mesh)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    for step in range(6):
        network(torch.ones(4, 12)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 3:
            save(network, step)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
