# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD305"]
# culprits_any = [[2], [3]]
# lines = [57, 61, 76, 87, 89, 95]
# branch = ["not table.rows", "row[\"score\"] >= self.cfg.min_score"]
# source = "https://github.com/pytorch/pytorch/issues/53840"
# ///
"""Quality filter with hand-over through a TCPStore: each rank publishes its filtered shard, its right neighbour merges it.
A shard of which nothing is left is not published, and the neighbour waits for its key."""
import json
import logging
import random
from dataclasses import dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist

log = logging.getLogger("filter")


@dataclass
class FilterConfig:
    rounds: int = 6
    rows: int = 30
    min_score: float = 0.35
    patience: timedelta = timedelta(hours=2)


@dataclass
class Table:
    shard: int
    rows: list = field(default_factory=list)

    def dumps(self) -> str:
        return json.dumps({"shard": self.shard, "rows": self.rows})

    @classmethod
    def loads(cls, text):
        d = json.loads(text)
        return cls(d["shard"], d["rows"])


class Mailbox:
    """Small tables travel through the store, keyed by round and producer."""

    def __init__(self, rank, world, cfg: FilterConfig):
        self.rank, self.world, self.cfg = rank, world, cfg
        self.store = dist.PrefixStore("filter", dist.distributed_c10d._get_default_store())

    def key(self, n, producer):
        return f"round{n}/from{producer}"

    def publish(self, n, table: Table):
        self.store.set(self.key(n, self.rank), table.dumps())

    def collect(self, n, producer) -> Table:
        key = self.key(n, producer)
        self.store.wait([key], self.cfg.patience)
        return Table.loads(self.store.get(key).decode())


class QualityFilter:
    def __init__(self, cfg: FilterConfig, rank: int):
        self.cfg, self.rank = cfg, rank

    def read(self, shard):
        rng = random.Random(shard)
        ceiling = 0.3 if shard == 18 else 1.0
        for i in range(self.cfg.rows):
            yield {"doc": f"{shard}-{i}", "score": rng.random() * ceiling}

    def __call__(self, shard) -> Table:
        return Table(shard, [row for row in self.read(shard) if row["score"] >= self.cfg.min_score])


class Exchange:
    def __init__(self, cfg: FilterConfig):
        self.cfg, self.rank, self.world = cfg, dist.get_rank(), dist.get_world_size()
        self.filter, self.mail = QualityFilter(cfg, self.rank), Mailbox(self.rank, self.world, cfg)
        self.merged = 0

    def hand_over(self, n):
        table = self.filter(n * self.world + self.rank)
        if not table.rows:
            log.info("[rank %d] shard %d is empty", self.rank, table.shard)
            return table
        self.mail.publish(n, table)
        return table

    def round(self, n):
        mine = self.hand_over(n)
        left = self.mail.collect(n, (self.rank - 1) % self.world)
        self.merged += len({r["doc"] for r in mine.rows} | {r["doc"] for r in left.rows})
        total = torch.tensor([self.merged])
        dist.all_reduce(total)
        return int(total)


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    exchange = Exchange(FilterConfig())
    for n in range(exchange.cfg.rounds):
        total = exchange.round(n)
        if exchange.rank == 0:
            log.info("round %d: %d rows", n, total)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
