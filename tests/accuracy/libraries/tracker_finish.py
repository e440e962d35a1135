# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["lightning"]
# outcome = "hang"
# watch = "--give-up-after 8"
# causes_any = ["HD701"]
# culprits = [0]
# lines = [46, 107, 33, 108, 105]
# source = "https://github.com/facebookresearch/fairseq/issues/4619"
# ///
"""Lightning Fabric training with an experiment tracker on the main process that uploads rows from a thread."""
import json
import logging
import os
import queue
import tempfile
import threading
from pathlib import Path

import torch
from lightning.fabric import Fabric
from torch import nn

log = logging.getLogger("tracked")


class Tracker:
    """Collects rows and uploads them in batches; finish() flushes the rest and ends the thread."""

    def __init__(self, path, batch=8):
        self.path, self.batch = path, batch
        self.queue = queue.Queue()
        self.thread = threading.Thread(target=self._upload, name="upload")
        self.thread.start()

    def log(self, **row):
        self.queue.put(row)

    def finish(self):
        self.queue.put(None)
        self.thread.join()

    def _upload(self):
        rows = []
        while True:
            item = self.queue.get()
            if item is None:
                break
            rows.append(item)
            if len(rows) >= self.batch:
                self._send(rows)
                rows = []
        self._send(rows)

    def _send(self, rows):
        with open(self.path, "a") as f:
            f.writelines(json.dumps(r) + "\n" for r in rows)


class NullTracker:
    def log(self, **row):
        pass

    def finish(self):
        pass


class Patience:
    def __init__(self, limit, delta):
        self.limit, self.delta, self.best, self.bad = limit, delta, float("inf"), 0

    def exhausted(self, value):
        if value < self.best - self.delta:
            self.best, self.bad = value, 0
        else:
            self.bad += 1
        return self.bad >= self.limit


class Experiment:
    def __init__(self, fabric, tracker):
        self.fabric, self.tracker = fabric, tracker
        fabric.seed_everything(5)
        net = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 1))
        self.model, self.opt = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=0.1))
        self.gen = torch.Generator().manual_seed(fabric.global_rank)
        self.patience = Patience(limit=3, delta=0.02)
        self.stopped_at = None

    def epoch(self, steps=10):
        total = 0.0
        for _ in range(steps):
            x = torch.randn(16, 10, generator=self.gen)
            loss = nn.functional.mse_loss(self.model(x), x.sum(1, keepdim=True))
            self.opt.zero_grad()
            self.fabric.backward(loss)
            self.opt.step()
            total += loss.item()
        return self.fabric.all_reduce(torch.tensor(total / steps), reduce_op="mean").item()

    def run(self, epochs):
        for epoch in range(epochs):
            mean = self.epoch()
            self.tracker.log(epoch=epoch, loss=mean)
            if self.patience.exhausted(mean):
                self.stopped_at = epoch
                return self.stopped_at
        self.tracker.finish()
        return epochs


def main():
    fabric = Fabric(accelerator="cpu", devices=3, strategy="ddp")
    fabric.launch()
    logging.basicConfig(level=logging.INFO, format=f"[{fabric.global_rank}] %(message)s")
    out = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "tracked.jsonl"
    tracker = Tracker(out) if fabric.is_global_zero else NullTracker()
    last = Experiment(fabric, tracker).run(epochs=200)
    fabric.barrier()
    log.info("finished after epoch %d", last)


if __name__ == "__main__":
    main()
