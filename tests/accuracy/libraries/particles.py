# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 6"
# requires = ["numpy"]
# outcome = "hang"
# causes_any = ["HD202"]
# culprits = [4]
# culprits_any = [[3, 5], [3, 4, 5]]
# lines = [59, 75, 81, 82, 83, 108]
# branch = ["n_local > cfg.message_limit", "split", "range(parts)"]
# source = "https://github.com/pelahi/VELOCIraptor-STF/pull/75"
# ///
"""Particle simulation with a learned force model: slabs of the box on the ranks, particles near a slab's upper face are exported to the next rank each step."""
import logging
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist

logger = logging.getLogger("nbody")


@dataclass
class SimConfig:
    particles: int = 3000
    steps: int = 12
    dt: float = 0.02
    message_limit: int = 700
    clump_at: float = 0.75
    seed: int = 20240611


class Slab:
    def __init__(self, cfg, rank, world):
        self.lo, self.hi = rank / world, (rank + 1) / world
        rng = np.random.default_rng(cfg.seed)
        uniform = rng.random((cfg.particles // 2, 3))
        clump = rng.normal(cfg.clump_at, 0.05, (cfg.particles // 2, 3)) % 1.0
        pos = np.concatenate([uniform, clump])
        self.pos = pos[(pos[:, 0] >= self.lo) & (pos[:, 0] < self.hi)]

    def near_upper_face(self, width):
        return self.pos[self.pos[:, 0] > self.hi - width]

    def kick(self, force, dt):
        self.pos[:, 1:] = (self.pos[:, 1:] + dt * force[:, 1:]) % 1.0


class BoundaryExchange:
    """Passes boundary particles one slab up; large slabs move them in several messages."""

    def __init__(self, cfg, rank, world):
        self.cfg, self.rank, self.world = cfg, rank, world
        self.up, self.down = (rank + 1) % world, (rank - 1) % world

    def plan(self, slab):
        cfg, n_local = self.cfg, len(slab.pos)
        split = n_local > cfg.message_limit
        return 2 if split else 1

    def counts(self, outgoing, parts):
        mine = torch.tensor([len(outgoing)])
        everyone = [torch.zeros_like(mine) for _ in range(self.world)]
        dist.all_gather(everyone, mine)
        return int(everyone[self.down])

    def run(self, slab):
        outgoing = slab.near_upper_face(0.04)
        parts = self.plan(slab)
        expect = self.counts(outgoing, parts)
        pieces = np.array_split(outgoing, parts)
        sizes = [len(p) for p in np.array_split(np.empty(expect), parts)]
        received = []
        for part in range(parts):
            buf = torch.empty(max(sizes[part], 1), 3, dtype=torch.float64)
            out = torch.from_numpy(np.ascontiguousarray(pieces[part]))
            room = torch.zeros(self.cfg.message_limit, 3, dtype=torch.float64)
            room[: len(out)] = out
            landing = torch.empty_like(room)
            handle = dist.isend(room, self.up, tag=part)
            dist.recv(landing, self.down, tag=part)
            handle.wait()
            buf.copy_(landing[: len(buf)])
            received.append(buf[: sizes[part]])
        return torch.cat(received).numpy()


class ForceModel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.net = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))

    @torch.no_grad()
    def forward(self, pos, ghosts):
        centre = torch.from_numpy(np.concatenate([pos, ghosts]).mean(0)).float()
        x = torch.from_numpy(pos).float()
        return self.net(torch.cat([x, centre.expand_as(x)], 1)).numpy()


def simulate(cfg):
    rank, world = dist.get_rank(), dist.get_world_size()
    slab, model = Slab(cfg, rank, world), ForceModel()
    exchange = BoundaryExchange(cfg, rank, world)
    logger.info("rank %d holds %d particles", rank, len(slab.pos))
    for step in range(cfg.steps):
        ghosts = exchange.run(slab)
        slab.kick(model(slab.pos, ghosts), cfg.dt)
        energy = torch.tensor([float((slab.pos ** 2).sum())])
        dist.all_reduce(energy)
        if rank == 0:
            logger.info("step %d energy %.3f", step, energy.item())


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    dist.init_process_group("gloo", timeout=timedelta(minutes=20))
    simulate(SimConfig())
    dist.destroy_process_group()
