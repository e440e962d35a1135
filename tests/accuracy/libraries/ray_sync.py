# /// hangdoc
# launch = "python"
# requires = ["ray"]
# outcome = "hang"
# outcome_any = ["hang", "slow"]
# causes_any = ["HD101", "HD102"]
# culprits = [2]
# lines = [74, 76, 95, 98, 99, 107, 108]
# branch = ["version - self.versions[i] > self.cfg.max_lag"]
# source = "https://github.com/radixark/miles/pull/947"
# ///
"""Policy optimisation with Ray actors: one learner and two rollout workers in one gloo group.

The driver asks only the workers that lag behind to take the new weights. Rollout worker 2 has just been given the newest ones
with its checkpoint and is left out, while the learner and the other worker wait for it in the sync.
"""
import logging
import os
import socket
from dataclasses import dataclass
from datetime import timedelta

import ray

log = logging.getLogger("ppo")


@dataclass
class PPOConfig:
    rollouts: int = 2
    dim: int = 12
    iterations: int = 8
    max_lag: int = 0
    reload_at: int = 3


@ray.remote(num_cpus=1)
class PolicyWorker:
    def __init__(self, rank, world, cfg):
        import torch
        self.rank, self.world, self.cfg = rank, world, cfg
        torch.set_num_threads(1)
        torch.manual_seed(rank)
        self.net = torch.nn.Linear(cfg.dim, cfg.dim)
        self.version = 0

    def address(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            return s.getsockname()[1]

    def join(self, port):
        import torch.distributed as dist
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(self.rank), WORLD_SIZE=str(self.world), LOCAL_RANK=str(self.rank))
        dist.init_process_group("gloo", rank=self.rank, world_size=self.world, timeout=timedelta(minutes=30))
        return self.rank

    def rollout(self, count):
        import torch
        with torch.no_grad():
            return float(self.net(torch.randn(count, self.cfg.dim)).mean())

    def learn(self, rewards):
        import torch
        with torch.no_grad():
            for p in self.net.parameters():
                p += 0.01 * sum(rewards)
        self.version += 1
        return self.version

    def sync(self, version):
        import torch.distributed as dist
        for p in self.net.parameters():
            dist.broadcast(p.data, src=0)
        stamp = [None] * self.world
        dist.all_gather_object(stamp, version)
        self.version = version
        return stamp

    def reload(self, version):
        self.version = version
        return version


class Driver:
    def __init__(self, cfg):
        self.cfg = cfg
        world = cfg.rollouts + 1
        self.workers = [PolicyWorker.remote(r, world, cfg) for r in range(world)]
        port = ray.get(self.workers[0].address.remote())
        ray.get([w.join.remote(port) for w in self.workers])
        self.versions = [0] * world

    def outdated(self, version):
        return [i for i in range(1, len(self.workers)) if version - self.versions[i] > self.cfg.max_lag]

    def distribute(self, version):
        chosen = [0] + self.outdated(version)
        ray.get([self.workers[i].sync.remote(version) for i in chosen])
        for i in chosen:
            self.versions[i] = version

    def iterate(self, n):
        rewards = ray.get([w.rollout.remote(16) for w in self.workers[1:]])
        version = ray.get(self.workers[0].learn.remote(rewards))
        if n == self.cfg.reload_at:
            self.versions[2] = ray.get(self.workers[2].reload.remote(version))
        self.distribute(version)
        log.info("iteration %d: version %d, reward %.4f", n, version, sum(rewards) / len(rewards))


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    cfg = PPOConfig()
    ray.init(num_cpus=cfg.rollouts + 1, include_dashboard=False, log_to_driver=False)
    driver = Driver(cfg)
    for n in range(cfg.iterations):
        driver.iterate(n)
    ray.shutdown()


if __name__ == "__main__":
    main()
