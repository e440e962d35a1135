# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["datasets", "accelerate"]
# outcome = "healthy"
# source = "https://github.com/huggingface/datasets/pull/2298"
# ///
"""Main-process-first preprocessing with two map workers, then a slow producer that feeds consumers by send and recv."""
import logging
import os
import queue
import tempfile
import threading
import time
from pathlib import Path

import datasets
import torch
import torch.distributed as dist
from accelerate import PartialState
from datasets import Dataset

datasets.disable_progress_bars()
log = logging.getLogger("tickets")


def slow_tokenize(example):
    time.sleep(0.06)
    ids = [ord(c) % 50 for c in example["text"][:16]]
    return {"ids": ids + [0] * (16 - len(ids))}


def prepare(state, root):
    cached = root / "tickets"
    with state.main_process_first():
        if not cached.exists():
            rows = [{"text": f"ticket {i}: printer on floor {i % 9} is out of paper"} for i in range(160)]
            ds = Dataset.from_list(rows).map(slow_tokenize, num_proc=2, remove_columns=["text"])
            ds.save_to_disk(str(cached))
        ds = datasets.load_from_disk(str(cached))
    return ds


class Producer:
    """Reads ahead in a thread with a short queue; the main thread hands the items out in turn."""

    def __init__(self, ds, consumers):
        self.queue = queue.Queue(maxsize=2)
        self.consumers = consumers
        self.ds = ds
        self.thread = threading.Thread(target=self._read, name="reader")

    def _read(self):
        for start in range(0, len(self.ds), 10):
            time.sleep(0.7)
            self.queue.put(torch.tensor(self.ds[start : start + 10]["ids"]))
        self.queue.put(None)

    def run(self):
        self.thread.start()
        turn = 0
        while (item := self.queue.get()) is not None:
            dst = self.consumers[turn % len(self.consumers)]
            dist.send(torch.tensor([len(item)]), dst)
            dist.send(item, dst)
            turn += 1
        for dst in self.consumers:
            dist.send(torch.tensor([0]), dst)
        self.thread.join()
        return 0


def consume(source=0):
    total = 0
    while True:
        size = torch.zeros(1, dtype=torch.int64)
        dist.recv(size, source)
        if not int(size):
            return total
        item = torch.zeros(int(size), 16, dtype=torch.int64)
        dist.recv(item, source)
        total += int(item.ne(0).sum())


def main():
    logging.basicConfig(level=logging.INFO)
    state = PartialState(cpu=True)
    root = Path(tempfile.gettempdir()) / f"tickets_{os.environ['MASTER_PORT']}"
    root.mkdir(exist_ok=True)
    ds = prepare(state, root)
    rank, world = state.process_index, state.num_processes
    count = Producer(ds, list(range(1, world))).run() if rank == 0 else consume()
    total = torch.tensor([count])
    dist.all_reduce(total)
    log.info("rank %d: %d of %d tokens", rank, count, int(total))
    state.destroy_process_group()


if __name__ == "__main__":
    main()
