# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD105"]
# culprits_any = [[0, 1, 2], [0], [1], [2], [0, 1], [0, 2], [1, 2]]
# lines = [34, 40, 43, 70, 82, 83]
# source = "issues on broadcast with a src that is computed per rank (seen before; PBT examples)"
# ///
"""Population-based training: after each round everybody continues with the weights of the best member."""
import argparse
import logging
import os

import torch
import torch.distributed as dist

log = logging.getLogger("population")


def make_task(seed, rows):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 6, generator=generator)
    return x, (x[:, 0] + 0.5 * x[:, 1] > 0).float()


class Scoreboard:
    """What this member knows of the others' scores in a round; its own is there at once."""

    def __init__(self, rank, world):
        self.rank, self.world = rank, world
        self.scores = {}

    def begin(self, own):
        self.scores = {self.rank: own}

    def exchange(self):
        gathered = [None] * self.world
        dist.all_gather_object(gathered, self.scores[self.rank])
        for rank, score in enumerate(gathered):
            self.scores.setdefault(rank, score)

    def best(self):
        return max(self.scores, key=self.scores.get)


class Member:
    def __init__(self, rank, args):
        torch.manual_seed(rank)
        self.rate = 0.05 * (rank + 1)
        self.model = torch.nn.Linear(6, 1)
        self.task, self.check = make_task(1, 512), make_task(2, args.check_rows)

    def train(self, steps):
        x, y = self.task
        optimizer = torch.optim.SGD(self.model.parameters(), lr=self.rate)
        for _ in range(steps):
            loss = torch.nn.functional.binary_cross_entropy_with_logits(self.model(x).squeeze(1), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    @torch.no_grad()
    def score(self):
        x, y = self.check
        return round(float(((self.model(x).squeeze(1) > 0) == y.bool()).float().mean()), 2)

    @torch.no_grad()
    def adopt(self, source):
        for parameter in self.model.parameters():
            dist.broadcast(parameter, src=source)

    def perturb(self, rank):
        factor = 0.8 if rank % 2 else 1.25
        self.rate = min(2.0, self.rate * factor)


def evolve(member, board, args, rank):
    for number in range(args.rounds):
        member.train(args.steps)
        board.begin(member.score())
        board.exchange()
        source = board.best()
        member.adopt(source)
        if source != rank:
            member.perturb(rank)
        if rank == 0 and number % 5 == 0:
            log.info("round %d best score %.2f", number, max(board.scores.values()))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--check-rows", type=int, default=200)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format=f"[{os.environ['RANK']}] %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    evolve(Member(rank, args), Scoreboard(rank, world), args, rank)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
