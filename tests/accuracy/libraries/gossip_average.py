# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 5"
# requires = []
# outcome = "hang"
# causes_any = ["HD201"]
# culprits = [0]
# culprits_any = [[1], [2], [3], [4], [0, 1, 2, 3, 4], [1, 2, 3, 4]]
# lines = [52, 53, 55, 56, 63, 38]
# source = "https://github.com/p2pfl/p2pfl/issues/71"
# ///
"""Decentralised averaging: every node trains alone and mixes its weights with its neighbours of the round's topology."""
import logging
import os
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

log = logging.getLogger("gossip")


@dataclass
class GossipConfig:
    rounds: int = 9
    local_steps: int = 4
    schedule: list[str] = field(default_factory=lambda: ["line", "line", "star", "ring"])
    mixing: float = 0.5


def neighbours(kind: str, me: int, size: int) -> list[int]:
    if kind == "line":
        return [p for p in (me - 1, me + 1) if 0 <= p < size]
    if kind == "star":
        return list(range(1, size)) if me == 0 else [0]
    if kind == "ring":
        return [(me - 1) % size, (me + 1) % size]
    raise ValueError(kind)


class Mixer:
    """Exchanges flat weight vectors with peers, one after the other."""

    def __init__(self, cfg: GossipConfig):
        self.cfg = cfg
        self.me, self.size = dist.get_rank(), dist.get_world_size()

    def swap(self, peer: int, mine: torch.Tensor) -> torch.Tensor:
        theirs = torch.empty_like(mine)
        if self.me < peer:
            dist.send(mine, dst=peer)
            dist.recv(theirs, src=peer)
        else:
            dist.recv(theirs, src=peer)
            dist.send(mine, dst=peer)
        return theirs

    def mix(self, model: nn.Module, round_no: int) -> str:
        kind = self.cfg.schedule[min(round_no, len(self.cfg.schedule) - 1)]
        mine = parameters_to_vector(model.parameters()).detach()
        total, peers = torch.zeros_like(mine), neighbours(kind, self.me, self.size)
        for peer in peers:
            total += self.swap(peer, mine)
        blended = (1 - self.cfg.mixing) * mine + self.cfg.mixing * total / len(peers)
        vector_to_parameters(blended, model.parameters())
        return kind


class Node:
    def __init__(self, cfg: GossipConfig):
        self.cfg, self.mixer = cfg, Mixer(cfg)
        torch.manual_seed(7)
        self.model = nn.Sequential(nn.Linear(24, 64), nn.GELU(), nn.Linear(64, 3))
        self.rate = 0.05
        gen = torch.Generator().manual_seed(50 + self.mixer.me)
        self.data = torch.randn(256, 24, generator=gen)
        self.target = (self.data[:, :3].argmax(1) + self.mixer.me) % 3

    def local_phase(self) -> float:
        loss = torch.zeros(())
        for step in range(self.cfg.local_steps):
            rows = slice(step * 32, step * 32 + 32)
            loss = nn.functional.cross_entropy(self.model(self.data[rows]), self.target[rows])
            self.model.zero_grad()
            loss.backward()
            for p in self.model.parameters():
                p.data.sub_(self.rate * p.grad)
        return loss.item()

    def run(self) -> None:
        for round_no in range(self.cfg.rounds):
            loss = self.local_phase()
            kind = self.mixer.mix(self.model, round_no)
            log.info("node %d round %d (%s): loss %.3f", self.mixer.me, round_no, kind, loss)


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    Node(GossipConfig()).run()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
