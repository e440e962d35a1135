"""torch.distributed.checkpoint: rank 0 saves, as it did with torch.save.

dcp.save makes a plan that all ranks agree on, also where only rank 0 has something to write.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# cause = "HD109"
# culprits = [0]
# lines = [29]
# code = ["dcp.save({\"model\": model.state_dict()}, checkpoint_id=os.path.join(folder, f\"step-{step}\"))"]
# source = "constructed"
# ///

import os
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.nn.parallel import DistributedDataParallel

FIXED = os.environ.get("FIXED") == "1"


def save(model, folder, step):
    if dist.get_rank() == 0 or FIXED:
        dcp.save({"model": model.state_dict()}, checkpoint_id=os.path.join(folder, f"step-{step}"))


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    folder = [tempfile.mkdtemp(prefix="checkpoint-")]
    dist.broadcast_object_list(folder, src=0)
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(6):
        model(torch.ones(4, 8)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 3 == 2:
            save(model, folder[0], step)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
