# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD305"]
# culprits_any = [[2], [0, 1, 3]]
# lines = [45, 61, 74, 76, 79, 116, 117]
# branch = ["for region in self.pool.registered()", "nbytes >= self.page", "region.nbytes >= self.page"]
# source = "https://github.com/ai-dynamo/nixl/pull/1155"
# ///
import json
import logging
import os
from dataclasses import dataclass, asdict
from datetime import timedelta
from typing import Dict, List

import torch
import torch.distributed as dist

log = logging.getLogger("agents")


@dataclass(frozen=True)
class Region:
    name: str
    offset: int
    nbytes: int


class PinnedPool:
    """Carves transfer regions out of what the cache leaves free; small scraps cannot be registered."""

    def __init__(self, page=4096):
        self.page = page
        self.regions: List[Region] = []

    def carve(self, layout: Dict[str, int]):
        offset = 0
        for name, nbytes in layout.items():
            self.regions.append(Region(name, offset, nbytes))
            offset += nbytes

    def registered(self):
        return [region for region in self.regions if region.nbytes >= self.page]


class MetadataStore:
    def __init__(self, store, rank):
        self.store = dist.PrefixStore("agents", store)
        self.rank = rank

    def publish(self, regions):
        rows = []
        for region in regions:
            rows.append(asdict(region))
            self.store.set(f"agent/{self.rank}", json.dumps({"rank": self.rank, "regions": rows}))

    def peers(self, ranks):
        keys = [f"agent/{r}" for r in ranks if r != self.rank]
        self.store.wait(keys, timedelta(hours=2))
        return {k: json.loads(self.store.get(k)) for k in keys}


class TransferAgent:
    def __init__(self, rank, world, pool, metadata):
        self.rank, self.world = rank, world
        self.pool = pool
        self.metadata = metadata
        self.remote = {}

    def announce(self):
        collected = []
        for region in self.pool.registered():
            collected.append(region)
            self.metadata.publish(collected)

    def connect(self):
        found = self.metadata.peers(range(self.world))
        for entry in found.values():
            self.remote[entry["rank"]] = [Region(**r) for r in entry["regions"]]
        log.info("rank %d sees %s", self.rank, {r: len(v) for r, v in self.remote.items()})

    def exchange(self):
        size = torch.tensor([sum(r.nbytes for r in self.pool.registered())])
        dist.all_reduce(size)
        return size.item()


def kv_leftover(rank, tp_heads=(8, 8, 9, 7), block=512):
    budget = 64 * 1024
    used = {
        "keys": tp_heads[rank] * block * 6,
        "values": tp_heads[rank] * block * 6,
    }
    left = budget - sum(used.values())
    spare = left // 4 if left > 12_000 else left // 12
    return {f"slab{k}": spare for k in range(3)}


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo", timeout=timedelta(hours=2))
    rank, world = dist.get_rank(), dist.get_world_size()
    master = dist.TCPStore(
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        is_master=False,
        timeout=timedelta(hours=2),
    )
    pool = PinnedPool()
    pool.carve(kv_leftover(rank))
    agent = TransferAgent(rank, world, pool, MetadataStore(master, rank))
    dist.barrier()
    agent.announce()
    agent.connect()
    total = agent.exchange()
    if rank == 0:
        log.info("%d bytes registered in all", total)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
