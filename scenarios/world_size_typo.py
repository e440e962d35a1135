"""The configuration says three, the launcher starts two.

torchrun tells every rank the right world size, but the script trusts its own configuration file and passes
that number to init_process_group. Both ranks wait for a third one that nobody has started.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# outcome = "hang"
# cause = "HD301"
# culprits = [2]
# lines = [28]
# code = ["dist.init_process_group(\"gloo\", rank=rank, world_size=config[\"gpus\"])"]
# source = "constructed"
# ///

import os

import torch
import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"


def main():
    config = {"gpus": 2 if FIXED else 3, "steps": 4}
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo", rank=rank, world_size=config["gpus"])
    for _ in range(config["steps"]):
        dist.all_reduce(torch.ones(4))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
