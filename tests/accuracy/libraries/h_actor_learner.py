# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 5"
# outcome = "healthy"
# ///
"""Two learners and three actors with groups of their own: actors send rollouts of unequal lengths point to point, learners answer weights
through a key of the store that the actors poll; the groups issue very different numbers of collectives."""
import logging
import pickle
import random
import time
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn as nn

log = logging.getLogger("impala")


@dataclass
class ActorLearnerConfig:
    learners: int = 2
    obs: int = 6
    actions: int = 3
    rounds: int = 10
    longest: int = 12
    lr: float = 0.02
    think: float = 0.6


class Weights:
    """Publishes versions of the policy in the rendezvous store."""

    def __init__(self, store):
        self.store = store

    def publish(self, version, net):
        self.store.set(f"policy/{version}", pickle.dumps({k: v.numpy() for k, v in net.state_dict().items()}))

    def wait(self, version):
        key = f"policy/{version}"
        while not self.store.check([key]):
            time.sleep(0.05)
        return {k: torch.from_numpy(v) for k, v in pickle.loads(self.store.get(key)).items()}


class Actor:
    def __init__(self, cfg, rank, group, weights):
        self.cfg, self.rank, self.group, self.weights = cfg, rank, group, weights
        self.net = nn.Linear(cfg.obs, cfg.actions)
        self.rng = random.Random(rank)
        self.learner = rank % cfg.learners

    def episode(self):
        steps = self.rng.randint(2, self.cfg.longest)
        time.sleep(self.cfg.think * steps / self.cfg.longest)
        return torch.randn(steps, self.cfg.obs)

    def run(self):
        for version in range(self.cfg.rounds):
            self.net.load_state_dict(self.weights.wait(version))
            obs = self.episode()
            dist.send(torch.tensor([len(obs)]), dst=self.learner)
            dist.send(obs, dst=self.learner)
            if version % 5 == 4:
                longest = torch.tensor([float(len(obs))])
                dist.all_reduce(longest, op=dist.ReduceOp.MAX, group=self.group)


class Learner:
    def __init__(self, cfg, rank, world, group, weights):
        self.cfg, self.rank, self.group, self.weights = cfg, rank, group, weights
        self.actors = [a for a in range(cfg.learners, world) if a % cfg.learners == rank]
        torch.manual_seed(0)
        self.net = nn.Linear(cfg.obs, cfg.actions)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=cfg.lr)

    def receive(self, actor):
        steps = torch.zeros(1, dtype=torch.long)
        dist.recv(steps, src=actor)
        obs = torch.empty(steps.item(), self.cfg.obs)
        dist.recv(obs, src=actor)
        return obs

    def run(self):
        for version in range(self.cfg.rounds):
            if self.rank == 0:
                self.weights.publish(version, self.net)
            for actor in self.actors:
                loss = self.net(self.receive(actor)).logsumexp(-1).mean() / len(self.actors)
                loss.backward()
            for p in self.net.parameters():
                dist.all_reduce(p.grad, group=self.group)
            self.opt.step()
            self.opt.zero_grad()
            if self.rank == 0:
                log.info("version %d loss %.3f", version, loss.item())


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    cfg, rank, world = ActorLearnerConfig(), dist.get_rank(), dist.get_world_size()
    learners = dist.new_group(list(range(cfg.learners)))
    actors = dist.new_group(list(range(cfg.learners, world)))
    weights = Weights(dist.distributed_c10d._get_default_store())
    role = Learner(cfg, rank, world, learners, weights) if rank < cfg.learners else Actor(cfg, rank, actors, weights)
    role.run()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
