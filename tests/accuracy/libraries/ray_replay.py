# /// hangdoc
# launch = "python"
# requires = ["ray"]
# outcome = "hang"
# causes_any = ["HD301"]
# culprits = [3]
# lines = [72, 94, 96, 100, 114, 116]
# source = "https://github.com/ray-project/ray/issues/5468"
# ///
"""Off-policy learning on Ray: a replay actor serves batches, four learner actors form a gloo group and average gradients."""
import logging
import os
import random
import socket
import tempfile
from dataclasses import dataclass
from datetime import timedelta

os.environ.setdefault("RAY_AUTH_MODE", "disabled")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray
import torch
import torch.distributed as dist

logger = logging.getLogger("offpolicy")


@dataclass(frozen=True)
class Plan:
    learners: int = 4
    replay_actors: int = 1
    cpus: int = 4
    rounds: int = 20
    batch: int = 32
    obs: int = 8
    lr: float = 2e-3


@ray.remote(num_cpus=1)
class ReplayBuffer:
    def __init__(self, plan, capacity=5000):
        rng = random.Random(0)
        self.plan = plan
        self.rows = [[rng.gauss(0, 1) for _ in range(plan.obs)] for _ in range(capacity)]
        self.served = 0

    def sample(self):
        self.served += 1
        return random.sample(self.rows, self.plan.batch)

    def size(self):
        return len(self.rows)


@ray.remote(num_cpus=1)
class Learner:
    def __init__(self, rank, plan):
        self.rank, self.plan = rank, plan
        torch.set_num_threads(1)
        torch.manual_seed(1)
        self.q = torch.nn.Sequential(torch.nn.Linear(plan.obs, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))

    @staticmethod
    def rendezvous_port():
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            return s.getsockname()[1]

    def join(self, port):
        dist.init_process_group(
            "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=self.rank,
            world_size=self.plan.learners, timeout=timedelta(minutes=30))
        return self.rank

    def learn(self, buffer):
        losses = []
        for _ in range(self.plan.rounds):
            obs = torch.tensor(ray.get(buffer.sample.remote()))
            target = obs.sum(1)
            loss = (self.q(obs).max(1).values - target).pow(2).mean()
            self.q.zero_grad()
            loss.backward()
            for p in self.q.parameters():
                dist.all_reduce(p.grad)
                p.data.sub_(p.grad, alpha=self.plan.lr)
            losses.append(loss.item())
        return losses[-1]


class Driver:
    def __init__(self, plan):
        self.plan = plan
        self.buffer = ReplayBuffer.remote(plan)
        logger.info("replay holds %d rows", ray.get(self.buffer.size.remote()))
        self.learners = [Learner.remote(r, plan) for r in range(plan.learners)]

    def connect(self):
        port = ray.get(self.learners[0].rendezvous_port.remote())
        ranks = ray.get([l.join.remote(port) for l in self.learners])
        logger.info("learners connected: %s", ranks)

    def run(self):
        self.connect()
        losses = ray.get([l.learn.remote(self.buffer) for l in self.learners])
        logger.info("final losses %s", losses)


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    plan = Plan()
    scratch = os.path.join(os.environ.get("TMPDIR", tempfile.gettempdir()), "ray")
    options = {"_temp_dir": scratch} if len(scratch) < 40 else {}
    ray.init(address="local", num_cpus=plan.cpus, include_dashboard=False, object_store_memory=100 << 20,
             log_to_driver=False, **options)
    Driver(plan).run()
    ray.shutdown()


if __name__ == "__main__":
    main()
