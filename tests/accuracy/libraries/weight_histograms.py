# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD109", "HD101", "HD106"]
# culprits = [0]
# lines = [41, 33, 84, 85]
# branch = ["loss > self.factor * self.usual", "watch.unusual(loss)"]
# source = "https://github.com/Lightning-AI/pytorch-lightning/issues/17600"
# ///
"""FSDP training of a regression net on sensor data, with weight statistics when the loss looks unusual."""
import json
import logging
import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

log = logging.getLogger("sensors")


class LossWatch:
    def __init__(self, path, factor=25.0, decay=0.9):
        self.path, self.factor, self.decay, self.usual = Path(path), factor, decay, None

    def unusual(self, loss):
        if self.usual is None:
            self.usual = loss
        if loss > self.factor * self.usual:
            log.info("loss %.3g, usually %.3g", loss, self.usual)
            return True
        self.usual = self.decay * self.usual + (1 - self.decay) * loss
        return False

    def snapshot(self, model, step):
        rows = {}
        with FSDP.summon_full_params(model, writeback=False):
            for name, p in model.named_parameters():
                rows[name] = torch.histc(p.detach().float(), bins=12).tolist()
        with open(self.path, "a") as f:
            f.write(json.dumps({"step": step, "weights": rows}) + "\n")


class Sensors:
    """Windows of a plant's sensors; the first plant had a stuck valve for a moment."""

    def __init__(self, plant, batch=32):
        self.g = torch.Generator().manual_seed(plant)
        self.plant, self.batch = plant, batch

    def window(self, step):
        x = torch.randn(self.batch, 12, generator=self.g)
        y = x[:, :2].sum(1, keepdim=True)
        if self.plant == 0 and step == 11:
            y[5:9] += 4000.0
        return x, y


def build():
    torch.manual_seed(0)
    parts = [FSDP(nn.Sequential(nn.Linear(a, b), nn.Tanh()), device_id=torch.device("cpu")) for a, b in ((12, 32), (32, 32))]
    return FSDP(nn.Sequential(*parts, nn.Linear(32, 1)), device_id=torch.device("cpu"))


def backward(model, x, y):
    loss = nn.functional.smooth_l1_loss(model(x), y, beta=50.0)
    loss.backward()
    return loss.item()


def fit(rank, root, epochs=5, steps=12, lr=0.05):
    model = build()
    data = Sensors(plant=rank)
    watch = LossWatch(root / f"histograms-{rank}.jsonl")
    for epoch in range(epochs):
        for step in range(epoch * steps, (epoch + 1) * steps):
            x, y = data.window(step)
            model.zero_grad()
            loss = backward(model, x, y)
            if watch.unusual(loss):
                watch.snapshot(model, step)
            with torch.no_grad():
                for p in model.parameters():
                    if p.grad is not None:
                        p -= lr * p.grad
        dist.barrier()
        log.info("epoch %d loss %.4f", epoch, loss)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO, format=f"plant {rank}: %(message)s")
    root = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "sensors"
    root.mkdir(parents=True, exist_ok=True)
    fit(rank, root)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
