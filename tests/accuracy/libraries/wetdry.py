# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 5"
# outcome = "hang"
# causes_any = ["HD202", "HD101"]
# culprits = [2]
# lines = [76, 77, 84, 93]
# branch = ["self.tile.wet", "self.depth > self.cfg.dry_depth"]
# source = "https://github.com/pytorch/gloo/issues/308"
# ///
"""Differentiable shallow water on a strip of five tiles (estuary with a sand bank in the middle). With the falling tide the
middle tile falls dry and leaves the halo exchange out ("nothing to send"); its neighbours still wait for its rows."""
import logging
import math
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

log = logging.getLogger("estuary")


@dataclass
class EstuaryConfig:
    rows: int = 12
    cols: int = 16
    steps: int = 40
    dry_depth: float = 0.02
    tide_amplitude: float = 1.0
    tide_period: float = 60.0
    friction: float = 0.01


class Tile:
    """The rows of the estuary one rank owns, with one ghost row on either side."""

    def __init__(self, cfg, rank, world):
        self.cfg, self.rank = cfg, rank
        middle = (world - 1) / 2
        profile = 1.0 - abs(rank - middle) / world
        self.bed = torch.full((cfg.rows, cfg.cols), -1.4 + 1.35 * (profile if profile == 1.0 else 0.3 * profile))
        self.eta = torch.zeros(cfg.rows + 2, cfg.cols)
        self.flux = torch.zeros(cfg.rows, cfg.cols)

    @property
    def depth(self):
        return (self.eta[1:-1] - self.bed).clamp_min(0.0)

    @property
    def wet(self):
        return bool((self.depth > self.cfg.dry_depth).any())

    def force(self, step):
        level = self.cfg.tide_amplitude * math.cos(2 * math.pi * step / self.cfg.tide_period) - 0.9
        self.eta[1:-1] += 0.3 * (level - self.eta[1:-1])

    def advance(self, dt):
        slope = self.eta[2:] - self.eta[:-2]
        self.flux = (1 - self.cfg.friction) * self.flux - 0.05 * dt * slope
        self.eta[1:-1] -= dt * 0.1 * (self.flux - self.flux.mean())


class GhostRows:
    def __init__(self, tile, rank, world):
        self.tile = tile
        self.above = rank - 1 if rank > 0 else None
        self.below = rank + 1 if rank < world - 1 else None

    def post(self, peer, own, ghost):
        row = torch.empty(self.tile.cfg.cols)
        sent = dist.P2POp(dist.isend, self.tile.eta[own].contiguous(), peer)
        got = dist.P2POp(dist.irecv, row, peer)
        return [sent, got], (ghost, row)

    def refresh(self):
        if not self.tile.wet:
            return
        ops, landing = [], []
        for peer, own, ghost in ((self.above, 1, 0), (self.below, -2, -1)):
            if peer is not None:
                pair, place = self.post(peer, own, ghost)
                ops += pair
                landing.append(place)
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        for ghost, row in landing:
            self.tile.eta[ghost] = row


def stable_dt(tile):
    celerity = torch.sqrt(9.81 * tile.depth.max().clamp_min(1e-3))
    dt = (0.5 / celerity).reshape(1)
    dist.all_reduce(dt, op=dist.ReduceOp.MIN)
    return float(dt)


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    rank, world = dist.get_rank(), dist.get_world_size()
    cfg = EstuaryConfig()
    tile = Tile(cfg, rank, world)
    ghosts = GhostRows(tile, rank, world)
    for step in range(cfg.steps):
        tile.force(step)
        ghosts.refresh()
        dt = stable_dt(tile)
        tile.advance(dt)
        if rank == 0 and step % 5 == 0:
            log.info("step %d dt %.4f mean depth %.3f", step, dt, float(tile.depth.mean()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
