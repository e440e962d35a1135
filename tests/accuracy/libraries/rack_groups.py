# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD303"]
# culprits = [3]
# culprits_any = [[0, 1, 2], [2]]
# lines = [57, 60, 61]
# branch = ["link.gbps<self.slow_below"]
# source = "https://github.com/pytorch/pytorch/issues/145376"
# ///
"""Averages model parts over racks and over all ranks; slow links get a compressed path inside their rack."""
import csv
import io
import logging
from dataclasses import dataclass

import torch
import torch.distributed as dist

log = logging.getLogger("racks")

INVENTORY = """\
rank,host,rack,gbps
0,gpu-a1,a,100
1,gpu-a2,a,100
2,gpu-b1,b,100
3,gpu-b2,b,25
"""


@dataclass(frozen=True)
class Link:
    rank: int
    host: str
    rack: str
    gbps: float


def read_inventory(text):
    return [Link(int(r["rank"]), r["host"], r["rack"], float(r["gbps"])) for r in csv.DictReader(io.StringIO(text))]


class Topology:
    slow_below = 40

    def __init__(self, links, rank):
        self.links, self.rank = links, rank
        self.compressed = None
        self.everyone = None

    def rack_of(self, link):
        return sorted(other.rank for other in self.links if other.rack == link.rack)

    def connect(self):
        link = self.links[self.rank]
        if link.gbps < self.slow_below:
            rack = self.rack_of(link)
            log.info("rank %d (%s): link of %d Gbit/s, compressing within %s", self.rank, link.host, link.gbps, rack)
            self.compressed = dist.new_group(rack)
        self.everyone = dist.new_group([other.rank for other in self.links])
        return self


class Averager:
    def __init__(self, topology):
        self.topology = topology

    def __call__(self, tensor):
        if self.topology.compressed is not None:
            half = tensor.half().float()
            dist.all_reduce(half, group=self.topology.compressed)
            tensor = half / dist.get_world_size(self.topology.compressed)
        dist.all_reduce(tensor, group=self.topology.everyone)
        return tensor / dist.get_world_size(self.topology.everyone)


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    topology = Topology(read_inventory(INVENTORY), rank).connect()
    average = Averager(topology)
    weights = torch.full((256,), float(rank))
    for round_ in range(5):
        weights = average(weights + 0.1 * torch.randn(256))
        if rank == 0:
            log.info("round %d: mean weight %.4f", round_, weights.mean().item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
