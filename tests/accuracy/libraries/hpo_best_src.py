# /// hangdoc
# launch = "python"
# outcome = "hang"
# causes_any = ["HD105"]
# culprits = [3]
# lines = [88, 94, 106]
# branch = ["loss < best_loss and rank not in self.crashes"]
# source = "own"
# ///
"""Hyperparameter search, one trial a rank; after every round the best rank's weights are broadcast. The table of losses is the same on all
ranks, but each rank passes over the trials in its own list of crashed ones: rank 3 alone knows of one, so it takes another source."""
import logging
import math
import random
import socket
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F

log = logging.getLogger("hpo")
TRIALS = 5


@dataclass
class SearchSpace:
    lr: tuple = (0.003, 0.3)
    width: int = 16
    features: int = 8
    rounds: int = 100
    steps_per_round: int = 10
    batch: int = 16

    def draw(self, rng):
        low, high = map(math.log, self.lr)
        return math.exp(rng.uniform(low, high))


class Crashes:
    """Trials that gave a non-finite loss lately, as seen in this rank's log folder."""

    def __init__(self):
        self.seen = set()

    def note(self, rank):
        self.seen.add(rank)

    def __contains__(self, rank):
        return rank in self.seen


class Trial:
    def __init__(self, space, rank):
        self.space, self.rank = space, rank
        self.rng = random.Random(10 + rank)
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(space.features, space.width), nn.ReLU(), nn.Linear(space.width, 1))
        self.gen = torch.Generator().manual_seed(70 + rank)
        self.lr = space.draw(self.rng)

    def train(self):
        opt = torch.optim.SGD(self.net.parameters(), lr=self.lr)
        for _ in range(self.space.steps_per_round):
            x = torch.randn(self.space.batch, self.space.features, generator=self.gen)
            loss = F.mse_loss(self.net(x).squeeze(-1), x.pow(2).mean(1))
            opt.zero_grad()
            loss.backward()
            opt.step()
        return loss.item()


class Search:
    def __init__(self, space, rank, world):
        self.space, self.rank, self.world = space, rank, world
        self.trial, self.crashes = Trial(space, rank), Crashes()

    def table(self, loss):
        losses = torch.zeros(self.world)
        dist.all_gather_into_tensor(losses, torch.tensor([loss]))
        return losses.tolist()

    def best(self, losses):
        best_rank, best_loss = 0, math.inf
        for rank, loss in enumerate(losses):
            if loss < best_loss and rank not in self.crashes:
                best_rank, best_loss = rank, loss
        return best_rank

    def adopt(self, source):
        for tensor in self.trial.net.state_dict().values():
            dist.broadcast(tensor, src=source)

    def check_logs(self, number):
        """The crash reporter of a host writes late."""
        if number == 4 and self.rank == 3:
            self.crashes.note(1)

    def run(self):
        for number in range(self.space.rounds):
            self.check_logs(number)
            losses = self.table(self.trial.train())
            source = self.best(losses)
            self.adopt(source)
            self.trial.lr = self.space.draw(self.trial.rng)
            if self.rank == 0:
                log.info("round %d best rank %d loss %.3f", number, source, min(losses))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def worker(rank, world, port):
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    Search(SearchSpace(), rank, world).run()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(worker, args=(TRIALS, free_port()), nprocs=TRIALS)
