# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 5"
# requires = []
# outcome = "hang"
# causes_any = ["HD202", "HD102", "HD101", "HD106"]
# culprits = [3]
# lines = [79, 84, 88, 89, 90, 102, 104]
# branch = ["rewards.std() > self.cfg.min_spread", "self.informative(rewards)", "group in self.kept(version)", "_ in range(self.cfg.groups_per_actor)"]
# source = "https://github.com/areal-project/AReaL/issues/450"
# ///
"""Two learners and three actors: actors send groups of scored rollouts, learners average their updates."""
import logging
from dataclasses import dataclass

import torch
import torch.distributed as dist

log = logging.getLogger("rl")


@dataclass
class RLConfig:
    learners: int = 2
    groups_per_actor: int = 4
    group_size: int = 6
    dim: int = 5
    iterations: int = 12
    min_spread: float = 1e-6


class Topology:
    def __init__(self, cfg):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.learner_ranks = list(range(cfg.learners))
        self.actor_ranks = list(range(cfg.learners, self.world))
        self.learner_group = dist.new_group(self.learner_ranks)

    @property
    def is_learner(self):
        return self.rank in self.learner_ranks

    def learner_of(self, actor):
        return self.learner_ranks[(actor - len(self.learner_ranks)) % len(self.learner_ranks)]

    def actors_of(self, learner):
        return [a for a in self.actor_ranks if self.learner_of(a) == learner]


class Arithmetic:
    """Task: is a guess close to the target? The reward is 0 or 1. Prompts come with a difficulty."""

    EASY_PROMPTS = {(3, 34)}

    def __init__(self, cfg, seed):
        self.cfg = cfg
        self.seed = seed
        self.gen = torch.Generator().manual_seed(seed)
        self.drawn = 0

    def next_difficulty(self):
        self.drawn += 1
        return -0.2 if (self.seed, self.drawn) in self.EASY_PROMPTS else 0.75

    def rollouts(self, policy):
        x = torch.randn(self.cfg.group_size, self.cfg.dim, generator=self.gen)
        score = torch.sigmoid(x @ policy)
        order = torch.linspace(0, 1, self.cfg.group_size)
        return x, (0.5 * score + order > self.next_difficulty()).float()


class Actor:
    def __init__(self, cfg, topo):
        self.cfg, self.topo = cfg, topo
        self.task = Arithmetic(cfg, seed=topo.rank)
        self.dst = topo.learner_of(topo.rank)
        self.policy = torch.zeros(cfg.dim)

    def informative(self, rewards):
        return rewards.std() > self.cfg.min_spread

    def kept(self, version):
        for g in range(self.cfg.groups_per_actor):
            x, rewards = self.task.rollouts(self.policy)
            if self.informative(rewards):
                yield torch.cat([x, (rewards - rewards.mean())[:, None]], dim=1)

    def iterate(self, version):
        for group in self.kept(version):
            dist.send(group, dst=self.dst, tag=version)
        dist.broadcast(self.policy, src=0)


class Learner:
    def __init__(self, cfg, topo):
        self.cfg, self.topo = cfg, topo
        self.sources = topo.actors_of(topo.rank)
        self.policy = torch.zeros(cfg.dim)

    def collect(self, version):
        batch = []
        for src in self.sources:
            for _ in range(self.cfg.groups_per_actor):
                group = torch.empty(self.cfg.group_size, self.cfg.dim + 1)
                dist.recv(group, src=src, tag=version)
                batch.append(group)
        return torch.cat(batch)

    def iterate(self, version):
        data = self.collect(version)
        update = (data[:, :-1] * data[:, -1:]).mean(dim=0)
        dist.all_reduce(update, group=self.topo.learner_group)
        self.policy += 0.1 * update / len(self.topo.learner_ranks)
        dist.broadcast(self.policy, src=0)
        if self.topo.rank == 0:
            log.info("version %d: |policy| %.4f", version, self.policy.norm())


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    cfg = RLConfig()
    topo = Topology(cfg)
    role = (Learner if topo.is_learner else Actor)(cfg, topo)
    dist.barrier()
    for version in range(cfg.iterations):
        role.iterate(version)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
