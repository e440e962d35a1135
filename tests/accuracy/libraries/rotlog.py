# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD505"]
# culprits = [0]
# lines = [52, 58, 66, 69, 70, 86]
# branch = ["self.written > self.cfg.max_bytes"]
# source = "https://github.com/pytorch/pytorch/issues/45088"
# ///
"""A metrics file with a plain threading.Lock and a flusher thread. When the file is full, write() rotates it and rotate() calls
flush(), which takes the same lock again. Only rank 0 writes histograms and gets there."""
import json
import logging
import os
import tempfile
import threading
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("metrics")


@dataclass
class MetricsConfig:
    folder: str
    max_bytes: int = 6_000
    flush_seconds: float = 2.0
    histogram_every: int = 2


class MetricsFile:
    def __init__(self, cfg, rank):
        self.cfg, self.rank, self.part, self.written = cfg, rank, 0, 0
        self.lock, self.closing = threading.Lock(), threading.Event()
        self.rows = []
        self.file = self.open_part()
        self.flusher = threading.Thread(target=self.flush_often, name="metrics-flusher", daemon=True)
        self.flusher.start()

    def open_part(self):
        return open(os.path.join(self.cfg.folder, f"rank{self.rank}.{self.part}.jsonl"), "w")

    def flush_often(self):
        while not self.closing.wait(self.cfg.flush_seconds):
            self.flush()

    def flush(self):
        with self.lock:
            self.file.write("".join(self.rows))
            self.rows.clear()
            self.file.flush()

    def rotate(self):
        self.flush()
        self.file.close()
        self.part += 1
        self.written = 0
        self.file = self.open_part()

    def write(self, record):
        line = json.dumps(record) + "\n"
        with self.lock:
            self.rows.append(line)
            self.written += len(line)
            if self.written > self.cfg.max_bytes:
                self.rotate()

    def close(self):
        self.closing.set()
        self.flush()
        self.file.close()


class MetricsCallback:
    def __init__(self, sink, cfg, rank):
        self.sink, self.cfg, self.rank = sink, cfg, rank

    def on_step_end(self, step, loss, model):
        record = {"step": step, "loss": round(loss, 5)}
        if self.rank == 0 and step % self.cfg.histogram_every == 0:
            record["grads"] = {n: torch.histc(p.grad, 12).tolist() for n, p in model.named_parameters()}
        self.sink.write(record)


class Loop:
    def __init__(self, model, callbacks, world, steps=60):
        self.model, self.callbacks, self.world, self.steps = model, callbacks, world, steps
        self.optim = torch.optim.SGD(model.parameters(), lr=0.05)

    def sync(self):
        for p in self.model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= self.world

    def run(self):
        for step in range(self.steps):
            x = torch.randn(16, 8)
            self.optim.zero_grad()
            loss = (self.model(x) - x.norm(dim=1, keepdim=True)).pow(2).mean()
            loss.backward()
            self.sync()
            self.optim.step()
            for cb in self.callbacks:
                cb.on_step_end(step, loss.item(), self.model)


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 1))
    torch.manual_seed(rank)
    cfg = MetricsConfig(tempfile.mkdtemp(prefix="metrics-"))
    sink = MetricsFile(cfg, rank)
    Loop(model, [MetricsCallback(sink, cfg, rank)], world).run()
    sink.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
