# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "crashed"
# causes_any = ["HD401"]
# culprits = [1]
# lines = [40, 51]
# source = "https://github.com/pytorch/gloo/pull/489"
# ///
"""Rank 1 meets a record without a label and raises KeyError out of its collate function, then takes a second to write its dump.
The others fail at once with "Connection closed by peer" and are what the console shows last and longest."""
import json
import tempfile
import traceback

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset


class Records(Dataset):
    def __init__(self, rank):
        self.rank = rank

    def __len__(self):
        return 40

    def __getitem__(self, i):
        record = {"x": [float(i + k) for k in range(6)], "label": i % 3}
        if (self.rank, i) == (1, 26):
            del record["label"]
        return record


class Collate:
    def __call__(self, records):
        x = torch.tensor([r["x"] for r in records])
        y = torch.tensor([r["label"] for r in records])
        return x, y


class Trainer:
    def __init__(self, rank):
        self.model = DDP(nn.Linear(6, 3))
        self.loader = DataLoader(Records(rank), batch_size=4, collate_fn=Collate())
        self.rank = rank

    def epoch(self):
        for x, y in self.loader:
            nn.functional.cross_entropy(self.model(x), y).backward()

    def dump(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as f:
            json.dump({"rank": self.rank, "trace": traceback.format_exc()}, f)


def main():
    dist.init_process_group("gloo")
    trainer = Trainer(dist.get_rank())
    try:
        trainer.epoch()
    except Exception:
        trainer.dump()
        raise
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
