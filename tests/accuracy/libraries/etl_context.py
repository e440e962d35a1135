# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 6"
# outcome = "hang"
# causes_any = ["HD103"]
# culprits_any = [[0]]
# lines = [48, 72, 73, 101, 103]
# branch = ["zlib.crc32(payload) != record[\"crc\"]"]
# source = "https://github.com/mosaicml/composer/pull/334"
# ///
"""ETL over gloo: decode, deduplicate, pack; a context manager closes each phase with a barrier and lets damaged input pass.
Rank 0's third shard holds a damaged record: the error leaves the phase half way and its rank is in the closing barrier."""
import json
import logging
import random
import zlib
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

log = logging.getLogger("etl")


@dataclass
class EtlConfig:
    shards_per_rank: int = 5
    records: int = 40
    report_every: int = 10


class DamagedRecord(ValueError):
    pass


class phase(AbstractContextManager):
    """Names a phase in the log and lets nobody enter the next one early."""

    def __init__(self, name, tolerate=(DamagedRecord,)):
        self.name, self.tolerate = name, tolerate

    def __enter__(self):
        log.debug("[%d] %s", dist.get_rank(), self.name)
        return self

    def __exit__(self, kind, value, trace):
        dist.barrier()
        if kind is not None and issubclass(kind, self.tolerate):
            log.warning("[%d] %s: %s", dist.get_rank(), self.name, value)
            return True
        return False


class ShardSource:
    def __init__(self, cfg: EtlConfig, rank: int):
        self.cfg, self.rank = cfg, rank

    def read(self, shard: int):
        rng = random.Random(1000 * self.rank + shard)
        for i in range(self.cfg.records):
            payload = json.dumps({"id": i, "text": "w" * rng.randint(5, 30)}).encode()
            crc = zlib.crc32(payload)
            if (self.rank, shard, i) == (0, 2, 17):
                payload = payload[:-3]
            yield {"payload": payload, "crc": crc}


class Decoder:
    def __call__(self, record):
        payload = record["payload"]
        if zlib.crc32(payload) != record["crc"]:
            raise DamagedRecord(f"checksum differs after {len(payload)} bytes")
        return json.loads(payload)


class Progress:
    """Adds up the rows of all ranks for the one progress line."""

    def __init__(self, every: int):
        self.every, self.rows = every, 0

    def advance(self):
        self.rows += 1
        if self.rows % self.every == 0:
            total = torch.tensor([self.rows])
            dist.all_reduce(total)
            if dist.get_rank() == 0:
                log.info("%d rows", int(total))


class Pipeline:
    def __init__(self, cfg: EtlConfig):
        self.cfg = cfg
        self.source = ShardSource(cfg, dist.get_rank())
        self.decode, self.progress = Decoder(), Progress(cfg.report_every)
        self.seen, self.packed = set(), []

    def run_shard(self, shard: int):
        rows = []
        with phase(f"decode-{shard}"):
            for record in self.source.read(shard):
                rows.append(self.decode(record))
                self.progress.advance()
        with phase(f"dedup-{shard}"):
            fresh = [r for r in rows if (shard, r["text"]) not in self.seen]
            self.seen.update((shard, r["text"]) for r in fresh)
        with phase(f"pack-{shard}"):
            self.packed.append(sum(len(r["text"]) for r in fresh))


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    cfg = EtlConfig()
    pipeline = Pipeline(cfg)
    for shard in range(cfg.shards_per_rank):
        pipeline.run_shard(shard)
    sizes = [None] * dist.get_world_size()
    dist.all_gather_object(sizes, pipeline.packed)
    if dist.get_rank() == 0:
        log.info("packed %s", sizes)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
