# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD105"]
# culprits_any = [[3], [1], [1, 3], [0, 1, 2], [0, 1, 2, 3]]
# lines = [60, 61, 65, 67, 90]
# source = "NVIDIA/Megatron-LM#796 (src of a broadcast)"
# ///
"""Population training: every rank has a learning rate of its own; now and then all continue from the best member."""
import argparse
import random

import torch
import torch.distributed as dist
import torch.nn as nn


class Member:
    def __init__(self, rank, rate):
        self.rank, self.rate = rank, rate
        torch.manual_seed(rank)
        self.model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 3))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=rate)
        generator = torch.Generator().manual_seed(50)
        self.x = torch.randn(160, 5, generator=generator)
        self.y = self.x[:, :3].argmax(1)

    def train(self, steps):
        for step in range(steps):
            rows = slice(step * 8 % 128, step * 8 % 128 + 8)
            loss = nn.functional.cross_entropy(self.model(self.x[rows]), self.y[rows])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    @torch.no_grad()
    def score(self):
        right = self.model(self.x[128:]).argmax(1) == self.y[128:]
        return round(right.float().mean().item(), 1)

    def perturb(self, shared):
        self.rate *= shared.choice((0.8, 1.0, 1.25))
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate


class Population:
    def __init__(self, rank, world):
        self.rank, self.world = rank, world
        self.shared = random.Random(8)
        self.lineage = []

    def scores(self, member):
        own = torch.tensor([member.score()])
        rows = [torch.zeros(1) for _ in range(self.world)]
        dist.all_gather(rows, own)
        return {rank: row.item() for rank, row in enumerate(rows)}

    def best(self, scores):
        order = [self.rank, *(r for r in scores if r != self.rank)]
        return max(order, key=scores.get)

    def exploit(self, member):
        scores = self.scores(member)
        source = self.best(scores)
        for tensor in member.model.state_dict().values():
            dist.broadcast(tensor, src=source)
        self.lineage.append(source)
        member.perturb(self.shared)
        return scores


def agree_on_rate(member, world):
    mean = torch.tensor(member.rate)
    dist.all_reduce(mean)
    return mean.item() / world


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--steps", type=int, default=30)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    member = Member(rank, rate=(0.003, 0.2, 0.02, 0.2)[rank % 4])
    population = Population(rank, world)
    for number in range(args.rounds):
        member.train(args.steps)
        scores = population.exploit(member)
        rate = agree_on_rate(member, world)
        if rank == 0:
            print(f"round {number} best {max(scores.values()):.2f} mean rate {rate:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
