# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD505", "HD103", "HD113"]
# culprits = [2]
# lines = [49, 54, 67, 68, 69, 72]
# source = "justheuristic/prefetch_generator, fairseq's BackgroundConsumer: an exception in the thread leaves next() waiting"
# ///
"""Training from record files with a reader thread that keeps a few batches ahead."""
import argparse
import json
import logging
import os
import pathlib
import queue
import tempfile
import threading

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("train")


def write_records(folder, rank, count):
    """A stand-in for the export job of the data team."""
    path = pathlib.Path(folder) / f"part-{rank:03d}.jsonl"
    with open(path, "w") as out:
        for number in range(count):
            row = {"x": [((rank + 1) * number + i) % 17 / 17 for i in range(8)], "y": number % 2}
            if rank == 2 and number == 812:
                row["y"] = None
            out.write(json.dumps(row) + "\n")
    return path


class Records:
    def __init__(self, path, batch):
        self.path, self.batch = path, batch

    def __iter__(self):
        rows = []
        with open(self.path) as lines:
            for line in lines:
                rows.append(json.loads(line))
                if len(rows) == self.batch:
                    yield self.collate(rows)
                    rows = []

    def collate(self, rows):
        x = torch.tensor([row["x"] for row in rows])
        y = torch.tensor([float(row["y"]) for row in rows])
        return x, y


class Background(threading.Thread):
    """Iterates in a thread of its own; None marks the end."""

    def __init__(self, source, ahead):
        super().__init__(daemon=True, name="reader")
        self.source, self.ready = source, queue.Queue(ahead)
        self.start()

    def run(self):
        for item in self.source:
            self.ready.put(item)
        self.ready.put(None)

    def __iter__(self):
        while (item := self.ready.get()) is not None:
            yield item


def fit(model, optimizer, batches):
    seen, total = 0, 0.0
    for x, y in batches:
        loss = nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen, total = seen + len(x), total + loss.item()
    return seen, total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=20)
    parser.add_argument("--ahead", type=int, default=4)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format=f"[{os.environ['RANK']}] %(message)s")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    path = write_records(tempfile.mkdtemp(prefix="records-"), rank, args.records)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    seen, total = fit(model, optimizer, Background(Records(path, args.batch), args.ahead))
    log.info("%d records, loss %.3f", seen, total / max(1, seen // args.batch))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
