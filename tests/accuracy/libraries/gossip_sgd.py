# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD201"]
# culprits = [1, 2]
# culprits_any = [[1], [2]]
# lines = [71, 72, 83]
# branch = ["self.samples >= their_samples"]
# source = "https://github.com/NVIDIA/nccl/issues/479"
# ///
"""Decentralised SGD: in every round each worker averages its weights with one partner of a fixed schedule."""
import logging
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters


@dataclass
class Config:
    rounds: int = 40
    local_steps: int = 3
    hidden: int = 96
    lr: float = 0.05


class Schedule:
    """Alternating matchings on a ring."""

    def __init__(self, world):
        even = {i: i ^ 1 for i in range(world)}
        odd = {}
        for i in range(1, world, 2):
            odd[i], odd[(i + 1) % world] = (i + 1) % world, i
        self.matchings = [even, odd]

    def partner(self, rank, round_no):
        return self.matchings[round_no % 2][rank]


class GossipWorker:
    def __init__(self, cfg, rank, world, log):
        self.cfg, self.rank, self.log = cfg, rank, log
        torch.manual_seed(rank)
        self.model = nn.Sequential(nn.Linear(20, cfg.hidden), nn.Tanh(), nn.Linear(cfg.hidden, cfg.hidden),
                                   nn.Tanh(), nn.Linear(cfg.hidden, 1))
        self.opt = torch.optim.SGD(self.model.parameters(), lr=cfg.lr)
        self.schedule = Schedule(world)
        per_site = [320, 256, 256, 192]  # records of each hospital
        self.x = torch.randn(per_site[rank % 4], 20)
        self.y = self.x[:, :3].sum(1, keepdim=True)
        self.samples = len(self.x)
        self.table = [per_site[i % 4] for i in range(world)]

    def local_steps(self):
        for _ in range(self.cfg.local_steps):
            pick = torch.randint(0, self.samples, (32,))
            loss = nn.functional.mse_loss(self.model(self.x[pick]), self.y[pick])
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
        return loss.item()

    def exchange(self, partner, mine):
        """The site with more records speaks first, the other one listens first."""
        theirs = torch.empty_like(mine)
        their_samples = self.table[partner]
        if self.samples >= their_samples:
            dist.send(mine, partner)  # lead
            dist.recv(theirs, partner)
        else:
            dist.recv(theirs, partner)
            dist.send(mine, partner)
        weight = self.samples / (self.samples + their_samples)
        return weight * mine + (1 - weight) * theirs

    def mix(self, round_no):
        partner = self.schedule.partner(self.rank, round_no)
        mine = parameters_to_vector(self.model.parameters()).detach()
        merged = self.exchange(partner, mine)
        vector_to_parameters(merged, self.model.parameters())

    def run(self):
        for round_no in range(self.cfg.rounds):
            loss = self.local_steps()
            self.mix(round_no)
            if round_no % 2 == 1:
                t = torch.tensor([loss])
                dist.all_reduce(t)
                self.log.info("round %d mean loss %.4f", round_no, t.item() / dist.get_world_size())


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO, format=f"site {rank}: %(message)s")
    GossipWorker(Config(), rank, dist.get_world_size(), logging.getLogger("gossip")).run()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
