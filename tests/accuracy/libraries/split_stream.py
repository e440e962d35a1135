# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["datasets"]
# outcome = "hang"
# causes_any = ["HD102", "HD106", "HD101"]
# culprits_any = [[0], [1, 2]]
# lines = [55, 84, 88, 95, 101, 102]
# branch = ["for batch in self.stream", "len(buf) == self.size"]
# source = "https://github.com/huggingface/datasets/issues/6623"
# ///
import logging
import os
import tempfile
from dataclasses import dataclass
from datetime import timedelta

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HOME", os.path.join(tempfile.gettempdir(), "hfhome"))

import torch
import torch.distributed as dist
import torch.nn as nn
from datasets import IterableDataset
from datasets.distributed import split_dataset_by_node

log = logging.getLogger("stream")


@dataclass
class StreamConfig:
    files: int = 6
    rows: tuple = (31, 40, 22, 35, 48, 52)
    min_chars: int = 20
    batch: int = 4


def read_rows(files, rows):
    for f, n in zip(files, rows):
        for k in range(n):
            chars = 12 + (k * 7 + f * 5) % 60
            yield {"text": "x" * chars, "label": float((k + f) % 3)}


class BatchStream:
    """Groups the examples of one node; an incomplete group at the end is dropped."""

    def __init__(self, dataset, size):
        self.dataset = dataset
        self.size = size

    def __iter__(self):
        buf = []
        for row in self.dataset:
            buf.append(row)
            if len(buf) == self.size:
                yield self._collate(buf)
                buf = []

    @staticmethod
    def _collate(rows):
        x = torch.tensor([[len(r["text"]) / 60, 1.0] for r in rows])
        y = torch.tensor([[r["label"]] for r in rows])
        return x, y


def build(cfg, rank, world):
    ds = IterableDataset.from_generator(
        read_rows, gen_kwargs={"files": list(range(cfg.files)), "rows": list(cfg.rows)}
    )
    ds = split_dataset_by_node(ds, rank=rank, world_size=world)
    ds = ds.filter(lambda r: len(r["text"]) > cfg.min_chars)
    return BatchStream(ds, cfg.batch)


class Runner:
    def __init__(self, stream, rank):
        self.stream = stream
        self.rank = rank
        self.model = nn.parallel.DistributedDataParallel(nn.Linear(2, 1))
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def train_epoch(self):
        count = 0
        for batch in self.stream:
            x, y = batch
            loss = (self.model(x) - y).pow(2).mean()
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            count += 1
        return count, loss.item()

    def report(self, epoch, count, loss):
        rows = [None] * dist.get_world_size()
        dist.all_gather_object(rows, (self.rank, count, round(loss, 4)))
        if self.rank == 0:
            log.info("epoch %d: %s", epoch, rows)

    def fit(self, epochs):
        for epoch in range(epochs):
            count, loss = self.train_epoch()
            self.report(epoch, count, loss)


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo", timeout=timedelta(hours=1))
    rank, world = dist.get_rank(), dist.get_world_size()
    stream = build(StreamConfig(), rank, world)
    Runner(stream, rank).fit(epochs=3)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
