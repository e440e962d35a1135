# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 5"
# requires = []
# outcome = "hang"
# causes_any = ["HD202", "HD102", "HD101"]
# culprits = [2]
# culprits_any = [[2], [3], [2, 3], [2, 3, 4]]
# lines = [69, 70, 71, 77, 82, 84, 87, 106, 116, 132]
# branch = ["self.sources", "src in self.sources"]
# source = "https://github.com/RLinf/RLinf/pull/1127"
# ///
"""Actors push policy patches to rollout workers; both run in one job, in separate roles."""
import logging
import os
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

log = logging.getLogger("sync")


@dataclass(frozen=True)
class Layout:
    actors: int
    rollouts: int

    @classmethod
    def from_env(cls, world: int) -> "Layout":
        rollouts = int(os.environ.get("ROLLOUT_WORKERS", "2"))
        return cls(world - rollouts, rollouts)

    def is_actor(self, rank: int) -> bool:
        return rank < self.actors

    def rollout_rank(self, index: int) -> int:
        return self.actors + index

    def destination(self, actor: int) -> int:
        return self.rollout_rank(actor % self.rollouts)

    def origins(self, rollout: int) -> list:
        return list(range(rollout, min(self.actors, self.rollouts), self.rollouts))


class Policy(torch.nn.Module):
    def __init__(self, obs: int = 256, act: int = 64):
        super().__init__()
        self.trunk = torch.nn.Linear(obs, 256)
        self.head = torch.nn.Linear(256, act)

    def flat(self) -> torch.Tensor:
        return torch.nn.utils.parameters_to_vector(self.parameters()).detach()


class PatchSender:
    """Splits the weights over the actors; each sends its piece on."""

    def __init__(self, layout: Layout, rank: int, group):
        self.layout, self.rank, self.group = layout, rank, group
        self.dst = layout.destination(rank)
        self.version = 0

    def push(self, policy: Policy) -> None:
        piece = policy.flat().chunk(self.layout.actors)[self.rank].contiguous()
        self.version += 1
        head = torch.tensor([self.version, piece.numel()])
        dist.send(head, dst=self.dst)
        dist.send(piece, dst=self.dst)
        dist.barrier(group=self.group)


class PatchReceiver:
    def __init__(self, layout: Layout, rank: int):
        self.layout = layout
        self.sources = layout.origins(rank - layout.actors)
        self.pieces: dict = {}

    def pull(self) -> int:
        version = 0
        for src in self.sources:
            head = torch.zeros(2, dtype=torch.long)
            dist.recv(head, src=src)
            version = int(head[0])
            piece = torch.empty(int(head[1]))
            dist.recv(piece, src=src)
            self.pieces[src] = piece
        return version


class Actor:
    def __init__(self, layout: Layout, rank: int, group):
        self.policy = Policy()
        self.group = group
        self.sender = PatchSender(layout, rank, group)

    def iteration(self, n: int) -> None:
        loss = self.policy.head(torch.relu(self.policy.trunk(torch.randn(32, 256)))).square().mean()
        self.policy.zero_grad()
        loss.backward()
        for p in self.policy.parameters():
            dist.all_reduce(p.grad, group=self.group)
            p.data -= 1e-3 * p.grad
        if n % 4 == 3:
            self.sender.push(self.policy)


class Rollout:
    def __init__(self, layout: Layout, rank: int, group):
        self.receiver = PatchReceiver(layout, rank)
        self.group = group

    def iteration(self, n: int) -> None:
        if n % 4 == 3:
            version = self.receiver.pull()
            log.info("rollout %d: version %d, %d pieces", dist.get_rank(), version, len(self.receiver.pieces))
            norm = torch.stack([p.norm() for p in self.receiver.pieces.values()]).sum().reshape(1)
            dist.all_reduce(norm, group=self.group)


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    dist.init_process_group("gloo", timeout=timedelta(hours=2))
    torch.manual_seed(1)
    rank, layout = dist.get_rank(), Layout.from_env(dist.get_world_size())
    actors = dist.new_group(list(range(layout.actors)), timeout=timedelta(hours=2))
    rollouts = dist.new_group(list(range(layout.actors, dist.get_world_size())), timeout=timedelta(hours=2))
    role = Actor(layout, rank, actors) if layout.is_actor(rank) else Rollout(layout, rank, rollouts)
    for n in range(16):
        role.iteration(n)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
