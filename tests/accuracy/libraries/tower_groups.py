# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 6"
# requires = []
# outcome = "hang"
# causes_any = ["HD303"]
# culprits = [0, 1]
# culprits_any = [[2, 3, 4, 5]]
# lines = [58, 52, 49, 32, 33, 100]
# branch = ["tower.sequence_parallel > 1", "range(0, len(tower.ranks)"]
# source = "https://github.com/distdl/distdl/issues/87"
# ///
"""A vision and a language tower on disjoint ranks: each builds its own groups, then a bridge joins the towers."""
import logging
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("towers")


@dataclass(frozen=True)
class TowerSpec:
    name: str
    ranks: tuple
    width: int
    sequence_parallel: int = 1


SPECS = [
    TowerSpec("vision", (0, 1), width=24),
    TowerSpec("language", (2, 3, 4, 5), width=40, sequence_parallel=2),
]


class Topology:
    """Process groups of a rank: its tower's data group, perhaps a sequence group, and the bridge."""

    def __init__(self, specs):
        self.specs = specs
        self.rank = dist.get_rank()
        self.tower = next(s for s in specs if self.rank in s.ranks)
        self.data = {s.name: dist.new_group(list(s.ranks)) for s in specs}
        self.sequence = None

    def build_sequence(self) -> None:
        tower = self.tower
        if tower.sequence_parallel > 1:
            for start in range(0, len(tower.ranks), tower.sequence_parallel):
                members = list(tower.ranks[start : start + tower.sequence_parallel])
                group = dist.new_group(members)
                if self.rank in members:
                    self.sequence = group

    def build_bridge(self) -> dist.ProcessGroup:
        leads = [s.ranks[0] for s in self.specs] + [s.ranks[-1] for s in self.specs]
        return dist.new_group(sorted(leads))


class Tower(nn.Module):
    def __init__(self, spec: TowerSpec, topo: Topology):
        super().__init__()
        torch.manual_seed(len(spec.name))
        self.spec, self.topo = spec, topo
        self.body = nn.Sequential(nn.Linear(spec.width, spec.width), nn.GELU(), nn.Linear(spec.width, 16))

    def forward(self, x):
        if self.topo.sequence is not None:
            parts = [torch.empty_like(x) for _ in range(dist.get_world_size(self.topo.sequence))]
            dist.all_gather(parts, x, group=self.topo.sequence)
            x = torch.cat(parts)
        return self.body(x).mean(0)

    def warm_up(self) -> float:
        with torch.no_grad():
            out = self(torch.randn(8, self.spec.width))
        dist.all_reduce(out, group=self.topo.data[self.spec.name])
        return out.norm().item()


class Bridge:
    def __init__(self, group, width: int = 16):
        self.group, self.width = group, width

    def exchange(self, feature: torch.Tensor) -> torch.Tensor:
        feature = feature.clone()
        dist.all_reduce(feature, group=self.group)
        return feature / dist.get_world_size(self.group)


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    topo = Topology(SPECS)
    topo.build_sequence()
    tower = Tower(topo.tower, topo)
    log.info("rank %d (%s): warm-up %.3f", topo.rank, topo.tower.name, tower.warm_up())
    dist.barrier()
    group = topo.build_bridge()
    if topo.rank in (topo.tower.ranks[0], topo.tower.ranks[-1]):
        bridge = Bridge(group)
        for _ in range(10):
            bridge.exchange(torch.randn(bridge.width))
    dist.barrier()
    log.info("rank %d: done", topo.rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
