# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD105"]
# culprits = [2]
# lines = [82, 42, 94, 96]
# source = "https://github.com/libMesh/libmesh/pull/2945"
# ///
"""Population-based training: members train with their own rates; now and then all copy the best member's weights."""
import logging
import random
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

log = logging.getLogger("pbt")


@dataclass
class Member:
    rate: float
    model: nn.Module
    history: list = field(default_factory=list)


class Scoreboard:
    """Best accuracy of every member so far."""

    def __init__(self, rank):
        self.rank, self.best = rank, {}

    def update(self, scores):
        for member, score in enumerate(scores):
            self.best[member] = max(score, self.best.get(member, 0.0))

    def winner(self):
        """The best member; among equals a member trusts itself most, which saves it a copy."""
        return max(self.best, key=lambda member: (self.best[member], member == self.rank))


class Task:
    def __init__(self, seed, size=256):
        g = torch.Generator().manual_seed(seed)
        self.y = torch.randint(0, 2, (size,), generator=g)
        self.x = torch.randn(size, 10, generator=g) * 0.3 + 4 * self.y[:, None] - 2

    def loss(self, model, pick):
        return nn.functional.cross_entropy(model(self.x[pick]), self.y[pick])

    def score(self, model):
        with torch.no_grad():
            return (model(self.x).argmax(1) == self.y).float().mean().item()


class Population:
    def __init__(self, rank, world, task):
        self.rank, self.world, self.task = rank, world, task
        rates = [1e-6, 0.3, 0.1, 3e-6]
        torch.manual_seed(3)
        net = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 2))
        self.member = Member(rates[rank % len(rates)], net)
        self.board = Scoreboard(rank)
        self.rng = random.Random(rank)

    def train(self, steps):
        for _ in range(steps):
            pick = torch.randint(0, len(self.task.x), (64,))
            loss = self.task.loss(self.member.model, pick)
            self.member.model.zero_grad()
            loss.backward()
            with torch.no_grad():
                for p in self.member.model.parameters():
                    p -= self.member.rate * p.grad

    def inherit(self, winner):
        model = self.member.model
        weights = parameters_to_vector(model.parameters()).detach().clone()
        dist.broadcast(weights, src=winner)
        if winner != self.rank:
            vector_to_parameters(weights, model.parameters())
            self.member.rate *= self.rng.choice([0.8, 1.25])

    def generation(self, number):
        self.train(steps=20)
        own = torch.tensor([self.task.score(self.member.model)])
        scores = [torch.zeros(1) for _ in range(self.world)]
        dist.all_gather(scores, own)
        self.board.update([s.item() for s in scores])
        if number % 2 == 1:
            winner = self.board.winner()
            log.info("generation %d: member %d leads with %.4f", number, winner, self.board.best[winner])
            self.inherit(winner)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    logging.basicConfig(level=logging.INFO, format=f"member {rank}: %(message)s")
    population = Population(rank, world, Task(seed=11))
    for number in range(24):
        population.generation(number)
    log.info("done, best %.4f", max(population.board.best.values()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
