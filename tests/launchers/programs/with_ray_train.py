"""A Ray Train job of two workers; rank 1 calls a barrier that rank 0 does not.

Argument: a folder for a mark of each rank that is about to hang.
"""

import os
import sys
import tempfile
from pathlib import Path

import ray
from ray.train import RunConfig, ScalingConfig, get_context
from ray.train.torch import TorchTrainer

RANKS = 2


def train(config: dict[str, str]) -> None:
    import torch
    import torch.distributed as dist

    rank = get_context().get_world_rank()
    for _ in range(3):
        dist.all_reduce(torch.ones(2))
    Path(config["folder"], f"{rank}.{os.getpid()}").touch()
    if rank == 1:
        dist.barrier()
    dist.all_reduce(torch.ones(4))


def main() -> None:
    ray.init(num_cpus=RANKS + 1, include_dashboard=False, log_to_driver=False)
    with tempfile.TemporaryDirectory() as storage:
        TorchTrainer(
            train,
            train_loop_config={"folder": sys.argv[1]},
            scaling_config=ScalingConfig(num_workers=RANKS),
            run_config=RunConfig(storage_path=storage),
        ).fit()


if __name__ == "__main__":
    main()
