"""Plain Ray actors that form a process group; rank 1 calls a barrier that rank 0 does not.

Arguments: a folder for a mark of each rank that is about to hang, and a port.
"""

import os
import sys
from pathlib import Path

import ray

RANKS = 2


@ray.remote
class Worker:
    def run(self, rank: int, port: str, folder: str) -> None:
        import torch
        import torch.distributed as dist

        # As Ray Train does: nothing of this is visible from outside.
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, RANK=str(rank), WORLD_SIZE=str(RANKS))
        dist.init_process_group("gloo")
        for _ in range(3):
            dist.all_reduce(torch.ones(2))
        Path(folder, f"{rank}.{os.getpid()}").touch()
        if rank == 1:
            dist.barrier()
        dist.all_reduce(torch.ones(4))


def main() -> None:
    folder, port = sys.argv[1:]
    ray.init(num_cpus=RANKS, include_dashboard=False, log_to_driver=False)
    workers = [Worker.remote() for _ in range(RANKS)]
    ray.get([worker.run.remote(rank, port, folder) for rank, worker in enumerate(workers)])


if __name__ == "__main__":
    main()
