# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD107"]
# culprits = [1]
# culprits_any = [[0], [2], [3], [0, 3], [1, 2], [0, 2], [1, 3], [0, 2, 3], [0, 1, 2, 3]]
# lines = [52, 69, 71, 72, 110]
# source = "https://github.com/meta-pytorch/torchrec/pull/4149"
# ///
"""Sparse recommender on a 2x2 mesh: table gradients are averaged along the replica axis, dense gradients along the batch axis, the fullest bucket first."""
import logging
import os
from dataclasses import dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

log = logging.getLogger("recsys")


@dataclass
class TableSpec:
    name: str
    rows: int
    dim: int = 8


@dataclass
class Placement:
    """Which tables live on which column of the mesh."""
    columns: list = field(default_factory=lambda: [
        [TableSpec("user", 9000), TableSpec("ads", 4000)],
        [TableSpec("item", 8000), TableSpec("query", 6000)],
    ])
    streams: list = field(default_factory=lambda: ["feed", "kiosk", "kiosk", "feed"])
    distinct: dict = field(default_factory=lambda: {"feed": 1 << 20, "kiosk": 150})


class GradBucket:
    def __init__(self, name, params, group):
        self.name, self.params, self.group = name, params, group

    def fill(self):
        """Gradient values that carry information in this step; untouched table rows are zero."""
        return sum(int(p.grad.count_nonzero()) for p in self.params)

    def flush(self):
        flat = torch.cat([p.grad.reshape(-1) for p in self.params])
        dist.all_reduce(flat, group=self.group)
        offset = 0
        for p in self.params:
            p.grad.copy_(flat[offset:offset + p.numel()].view_as(p) / dist.get_world_size(self.group))
            offset += p.numel()


class BucketScheduler:
    """Full buckets go first so that their transfer overlaps with the packing of the sparse ones."""

    def __init__(self):
        self.buckets = []

    def register(self, bucket):
        self.buckets.append(bucket)

    def synchronise(self):
        order = sorted(self.buckets, key=GradBucket.fill, reverse=True)
        log.debug("order %s", [b.name for b in order])
        for bucket in order:
            bucket.flush()


class Recommender(torch.nn.Module):
    def __init__(self, tables):
        super().__init__()
        self.tables = torch.nn.ModuleDict({t.name: torch.nn.Embedding(t.rows, t.dim) for t in tables})
        self.over = torch.nn.Sequential(
            torch.nn.Linear(sum(t.dim for t in tables), 128), torch.nn.ReLU(), torch.nn.Linear(128, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))

    def forward(self, ids):
        return self.over(torch.cat([emb(ids[name] % emb.num_embeddings) for name, emb in self.tables.items()], -1))


class Job:
    def __init__(self, placement):
        self.mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replica", "batch"))
        column = self.mesh.get_local_rank("batch")
        torch.manual_seed(column)
        self.tables = placement.columns[column]
        self.model = Recommender(self.tables)
        self.scheduler = BucketScheduler()
        self.scheduler.register(GradBucket("dense", list(self.model.over.parameters()), self.mesh.get_group("batch")))
        self.scheduler.register(GradBucket("tables", list(self.model.tables.parameters()), self.mesh.get_group("replica")))
        self.stream = placement.streams[dist.get_rank()]
        self.distinct = placement.distinct[self.stream]
        log.info("stream %s, tables %s", self.stream, [t.name for t in self.tables])

    def batch(self, size=4096):
        ids = {t.name: torch.randint(self.distinct, (size,)) for t in self.tables}
        return ids, (ids[self.tables[0].name] % 2).float().unsqueeze(1)

    def run(self, steps):
        for step in range(steps):
            ids, clicks = self.batch()
            loss = torch.nn.functional.binary_cross_entropy_with_logits(self.model(ids), clicks)
            self.model.zero_grad()
            loss.backward()
            self.scheduler.synchronise()
            for p in self.model.parameters():
                p.data.sub_(p.grad, alpha=0.02)
            if step % 10 == 0:
                log.info("step %d loss %.4f", step, loss.item())


def main():
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s r{os.environ['RANK']} %(message)s")
    dist.init_process_group("gloo", timeout=timedelta(minutes=15))
    Job(Placement()).run(50)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
