# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = ["ray"]
# watch = "--give-up-after 8"
# outcome = "hang"
# causes_any = ["HD508", "HD509", "HD507", "HD505"]
# culprits = [0]
# lines = [84, 104, 107, 114, 127]
# branch = ["self.role is Role.DRIVER"]
# source = "https://github.com/ray-project/ray/issues/5468"
# ///
import enum
import logging
import os
import tempfile
from dataclasses import dataclass
from datetime import timedelta

os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

import ray
import torch
import torch.distributed as dist

log = logging.getLogger("rlhf")


class Role(enum.Enum):
    DRIVER = "driver"
    LEARNER = "learner"


@dataclass
class ScorerConfig:
    kind: str
    replicas: int
    cpus: float


@dataclass
class JobConfig:
    cluster_cpus: int = 1
    rounds: int = 4
    scorers: tuple = (
        ScorerConfig("length", replicas=1, cpus=0.25),
        ScorerConfig("toxicity", replicas=1, cpus=1.0),
    )


@ray.remote
class Scorer:
    def __init__(self, kind):
        self.kind = kind

    def ready(self):
        return self.kind

    def score(self, texts):
        if self.kind == "length":
            return [len(t) / 100 for t in texts]
        return [(sum(map(ord, t)) % 17) / 17 for t in texts]


class ScorerPool:
    def __init__(self, cfg):
        self.cfg = cfg
        self.actors = {}

    def connect(self):
        ray.init(
            num_cpus=self.cfg.cluster_cpus,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            object_store_memory=80 * 1024 * 1024,
            _temp_dir=tempfile.mkdtemp(prefix="ry", dir="/tmp"),
        )

    def launch(self):
        for spec in self.cfg.scorers:
            cls = Scorer.options(num_cpus=spec.cpus)
            self.actors[spec.kind] = [cls.remote(spec.kind) for _ in range(spec.replicas)]
        handles = [a.ready.remote() for group in self.actors.values() for a in group]
        names = ray.get(handles)
        log.info("scorers up: %s", names)

    def rewards(self, texts):
        total = [0.0] * len(texts)
        for group in self.actors.values():
            part = ray.get(group[0].score.remote(texts))
            total = [a + b for a, b in zip(total, part)]
        return total


class Worker:
    def __init__(self, cfg, rank):
        self.cfg = cfg
        self.rank = rank
        self.role = Role.DRIVER if rank == 0 else Role.LEARNER
        self.pool = None
        self.theta = torch.zeros(3)

    def setup(self):
        if self.role is Role.DRIVER:
            self.pool = ScorerPool(self.cfg)
            self.pool.connect()
            self.pool.launch()

    def collect(self, round_no):
        box = [None]
        if self.pool is not None:
            texts = [f"sample {round_no} {k}" for k in range(6)]
            box = [self.pool.rewards(texts)]
        dist.broadcast_object_list(box, src=0)
        return torch.tensor(box[0])

    def update(self, rewards):
        grad = torch.stack([rewards.mean(), rewards.std(), rewards.max()])
        dist.all_reduce(grad)
        self.theta += 0.1 * grad


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo", timeout=timedelta(hours=1))
    worker = Worker(JobConfig(), dist.get_rank())
    worker.setup()
    for r in range(worker.cfg.rounds):
        worker.update(worker.collect(r))
    log.info("rank %d theta=%s", worker.rank, worker.theta.tolist())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
