# /// hangdoc
# launch = "python"
# requires = ["ray"]
# outcome = "hang"
# causes_any = ["HD301"]
# culprits = [3]
# lines = [23, 35, 49, 72, 82, 83, 84, 87]
# source = "https://github.com/ray-project/ray_lightning/issues/216"
# ///
"""Data-parallel training on Ray actors, with an actor beside them that keeps the exponential average of the weights for the evaluation."""
import logging
import os
import socket
import tempfile
from datetime import timedelta

import ray

logging.basicConfig(level=logging.INFO, format="[driver] %(message)s")
log = logging.getLogger("gang")


@ray.remote(num_cpus=1)
class AverageKeeper:
    def __init__(self, size: int, decay: float = 0.9):
        self.average, self.decay = [0.0] * size, decay

    def absorb(self, weights: list):
        self.average = [self.decay * a + (1 - self.decay) * w for a, w in zip(self.average, weights)]

    def read(self) -> list:
        return self.average


@ray.remote(num_cpus=1)
class Trainer:
    def __init__(self, rank: int, world: int, keeper):
        self.rank, self.world, self.keeper = rank, world, keeper

    def address(self) -> tuple:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return "127.0.0.1", probe.getsockname()[1]

    def join(self, host: str, port: int):
        import torch.distributed as dist

        os.environ.update(RANK=str(self.rank), WORLD_SIZE=str(self.world), MASTER_ADDR=host, MASTER_PORT=str(port))
        dist.init_process_group("gloo", timeout=timedelta(minutes=20))
        return self.rank

    def train(self, steps: int) -> float:
        import torch
        import torch.distributed as dist

        weights = torch.zeros(8)
        for step in range(steps):
            gradient = torch.randn(8)
            dist.all_reduce(gradient)
            weights -= 0.1 * gradient / self.world
            if step % 10 == 9:
                self.keeper.absorb.remote(weights.tolist())
        return weights.norm().item()


class Cluster:
    def __init__(self, slots: int):
        self.folder = os.path.join(os.environ.get("TMPDIR", tempfile.gettempdir()), "ray")
        self.slots = slots

    def __enter__(self):
        ray.init(num_cpus=self.slots, include_dashboard=False, _temp_dir=self.folder, log_to_driver=False,
                 object_store_memory=80 << 20)
        return self

    def __exit__(self, *failure):
        ray.shutdown()


def run(slots: int, steps: int):
    with Cluster(slots):
        keeper = AverageKeeper.remote(8)
        world = slots
        trainers = [Trainer.remote(rank, world, keeper) for rank in range(world)]
        host, port = ray.get(trainers[0].address.remote())
        log.info("%d trainers meet at %s:%d", world, host, port)
        joined = ray.get([trainer.join.remote(host, port) for trainer in trainers])
        log.info("joined: %s", joined)
        norms = ray.get([trainer.train.remote(steps) for trainer in trainers])
        log.info("norms %s average %s", norms, ray.get(keeper.read.remote()))


if __name__ == "__main__":
    run(slots=int(os.environ.get("GANG_SLOTS", "4")), steps=100)
