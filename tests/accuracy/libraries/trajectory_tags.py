# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD202", "HD105", "HD102"]
# culprits_any = [[2], [0], [0, 2]]
# lines = [54, 55, 56, 57, 71, 85]
# branch = ["len(rows) < self.args.shortest"]
# source = "forum threads on send and recv with different tags"
# ///
"""Actors play episodes and send them to a learner; messages are matched by the number of the trajectory."""
import argparse
import logging
import os

import torch
import torch.distributed as dist

log = logging.getLogger("rl")


class Environment:
    """A walk on a line that ends at either side."""

    def __init__(self, seed, width):
        self.generator = torch.Generator().manual_seed(seed)
        self.width = width

    def episode(self, limit):
        position, rows = 0, []
        for _ in range(limit):
            move = int(torch.randint(0, 2, (1,), generator=self.generator)) * 2 - 1
            rows.append([position, move, position + move])
            position += move
            if abs(position) >= self.width:
                break
        return torch.tensor(rows, dtype=torch.float32)


class Actor:
    def __init__(self, rank, learner, args):
        self.learner, self.args = learner, args
        self.environment = Environment(args.seed + rank, args.width)
        self.number = 0

    def pad(self, rows):
        padded = torch.zeros(self.args.limit, 3)
        padded[:len(rows)] = rows
        return padded

    def run(self, count):
        sent = 0
        while sent < count:
            rows = self.environment.episode(self.args.limit)
            self.number += 1
            if len(rows) < self.args.shortest:
                continue
            dist.send(torch.tensor([len(rows)]), dst=self.learner, tag=2 * self.number)
            dist.send(self.pad(rows), dst=self.learner, tag=2 * self.number + 1)
            sent += 1
        return sent


class Learner:
    def __init__(self, actors, args):
        self.actors, self.args = actors, args
        self.value = torch.nn.Linear(1, 1)
        self.optimizer = torch.optim.SGD(self.value.parameters(), lr=1e-3)

    def receive(self, actor, number):
        length = torch.zeros(1, dtype=torch.long)
        dist.recv(length, src=actor, tag=2 * number)
        rows = torch.empty(self.args.limit, 3)
        dist.recv(rows, src=actor, tag=2 * number + 1)
        return rows[:int(length)]

    def update(self, rows):
        loss = (self.value(rows[:, :1]) - rows[-1, 2] / self.args.width).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def run(self, count):
        for number in range(1, count + 1):
            losses = [self.update(self.receive(actor, number)) for actor in self.actors]
            if number % 50 == 0:
                log.info("trajectory %d loss %.3f", number, sum(losses) / len(losses))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--trajectories", type=int, default=150)
    parser.add_argument("--width", type=int, default=6)
    parser.add_argument("--limit", type=int, default=60)
    parser.add_argument("--shortest", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format=f"[{os.environ['RANK']}] %(message)s")
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        Learner(range(1, world), args).run(args.trajectories)
    else:
        log.info("sent %d trajectories", Actor(rank, 0, args).run(args.trajectories))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
