# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD503", "HD505", "HD509"]
# culprits = [1]
# lines = [36, 40, 43, 60, 68, 73]
# source = "python bpo-6721, pytorch/pytorch#1355 (locks held across a fork of DataLoader workers)"
# ///
"""Training with DataLoader workers; a thread of each rank reports how many samples were decoded."""
import argparse
import json
import logging
import os
import pathlib
import tempfile
import threading
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("train")


class Counters:
    """Counts by name, written out every now and then; shared by whoever decodes samples."""

    def __init__(self, path, write_seconds):
        self.path, self.write_seconds = path, write_seconds
        self.values, self.lock = {}, threading.Lock()

    def add(self, name, amount=1):
        with self.lock:
            self.values[name] = self.values.get(name, 0) + amount

    def write(self):
        with self.lock:
            with open(self.path, "w") as out:
                json.dump(self.values, out)
                time.sleep(self.write_seconds)
                os.fsync(out.fileno())

    def report_forever(self, every):
        while True:
            time.sleep(every)
            self.write()


class Samples(Dataset):
    def __init__(self, size, counters):
        self.size, self.counters = size, counters

    def __len__(self):
        return self.size

    def __getitem__(self, number):
        self.counters.add("decoded")
        generator = torch.Generator().manual_seed(number)
        return torch.randn(12, generator=generator)


class Trainer:
    def __init__(self, counters, args):
        self.args, self.counters = args, counters
        self.loader = DataLoader(Samples(args.samples, counters), batch_size=20, num_workers=1, multiprocessing_context="fork")
        self.model = DDP(nn.Linear(12, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-2)

    def epoch(self, number):
        for batch in self.loader:
            self.counters.add("batches")
            loss = self.model(batch).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        log.info("epoch %d loss %.3f", number, loss.item())

    def validate(self):
        time.sleep(0.5)

    def fit(self):
        for number in range(self.args.epochs):
            self.epoch(number)
            self.validate()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=400)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--report-every", type=float, default=0.2)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format=f"[{os.environ['RANK']}] %(message)s")
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    network_disk = rank == 1
    path = pathlib.Path(tempfile.mkdtemp(prefix="counters-")) / f"{rank}.json"
    counters = Counters(path, write_seconds=1.5 if network_disk else 0.0)
    trainer = Trainer(counters, args)
    dist.barrier()
    threading.Thread(target=counters.report_forever, args=(args.report_every,), daemon=True, name="counters").start()
    trainer.fit()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
