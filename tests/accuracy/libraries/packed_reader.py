# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 8"
# outcome = "hang"
# causes_any = ["HD102"]
# culprits = [6]
# lines = [52, 53, 74, 78, 81, 86, 93, 94]
# branch = ["magic", "len(header)", "header", "for tokens in", "for batch in"]
# source = "https://github.com/webdataset/webdataset/issues/188"
# ///
"""A generator of packed sequences over binary shards. A shard with a wrong magic number ends the generator instead of being skipped; only the
reader of that shard runs short."""
import io
import struct
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

MAGIC = b"PACK"


@dataclass
class PackConfig:
    shards: int = 3
    rows: int = 5
    length: int = 8


class ShardStore:
    def __init__(self, cfg, rank):
        self.cfg, self.rank = cfg, rank

    def open(self, index):
        magic = b"PACX" if (self.rank, index) == (6, 1) else MAGIC
        body = b"".join(struct.pack("<I", (i * 7 + index) % 97) for i in range(self.cfg.rows * self.cfg.length))
        return io.BytesIO(magic + struct.pack("<I", self.cfg.rows) + body)


class PackedReader:
    def __init__(self, cfg, store):
        self.cfg, self.store = cfg, store

    def rows(self, f, count):
        for _ in range(count):
            yield torch.tensor(struct.unpack(f"<{self.cfg.length}I", f.read(4 * self.cfg.length)))

    def __iter__(self):
        for index in range(self.cfg.shards):
            f = self.store.open(index)
            magic = f.read(4)
            if magic != MAGIC:
                return
            (count,) = struct.unpack("<I", f.read(4))
            yield from self.rows(f, count)


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(97, 6), nn.Linear(6, 97)

    def forward(self, ids):
        return nn.functional.cross_entropy(self.out(self.embed(ids[:-1])), ids[1:])


class Pretraining:
    def __init__(self, cfg):
        self.reader = PackedReader(cfg, ShardStore(cfg, dist.get_rank()))
        self.model, self.losses = LanguageModel(), []

    def synchronize(self):
        for p in self.model.parameters():
            dist.all_reduce(p.grad)
            p.grad = None

    def epoch(self):
        for tokens in self.reader:
            loss = self.model(tokens.long())
            loss.backward()
            self.synchronize()
            self.losses.append(loss.item())

    def summary(self):
        parts = [None] * dist.get_world_size()
        dist.all_gather_object(parts, sum(self.losses) / len(self.losses))
        return parts


if __name__ == "__main__":
    dist.init_process_group("gloo")
    job = Pretraining(PackConfig())
    job.epoch()
    job.summary()
    dist.destroy_process_group()
