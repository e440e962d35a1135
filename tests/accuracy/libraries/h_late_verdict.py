# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["torchmetrics"]
# outcome = "healthy"
# watch = "--give-up-after 10"
# source = "https://github.com/ultralytics/yolov5/pull/8345"
# ///
"""Early stopping as it should be: rank 0 judges a long evaluation on its own, the others poll for the verdict file."""
import json
import logging
import os
import tempfile
import time
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
from torchmetrics.regression import MeanSquaredError

warnings.filterwarnings("ignore")
log = logging.getLogger("verdict")


class Verdicts:
    """Verdicts of rank 0 by epoch, in files that appear in one piece."""

    def __init__(self, folder, rank):
        self.folder, self.rank = folder, rank

    def publish(self, epoch, stop, score):
        draft = self.folder / f".verdict-{epoch}"
        draft.write_text(json.dumps({"stop": stop, "score": score}))
        draft.rename(self.folder / f"verdict-{epoch}.json")

    def wait(self, epoch):
        path = self.folder / f"verdict-{epoch}.json"
        while not path.exists():
            time.sleep(0.2)
        return json.loads(path.read_text())


class Judge:
    def __init__(self, patience, seconds):
        self.best, self.bad, self.patience, self.seconds = float("inf"), 0, patience, seconds

    def assess(self, model):
        metric = MeanSquaredError(sync_on_compute=False)
        g = torch.Generator().manual_seed(77)
        until = time.monotonic() + self.seconds
        with torch.no_grad():
            while time.monotonic() < until:
                x = torch.randn(512, 16, generator=g)
                metric.update(model(x), x.sum(1, keepdim=True))
        score = metric.compute().item()
        if score < 0.9 * self.best:
            self.best, self.bad = score, 0
        else:
            self.bad += 1
        return score, self.bad >= self.patience


def train_epoch(model, rank, world, epoch, steps=60):
    g = torch.Generator().manual_seed(1000 * epoch + rank)
    for _ in range(steps):
        x = torch.randn(32, 16, generator=g)
        loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                dist.all_reduce(p.grad)
                p -= 0.02 * p.grad / world
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    logging.basicConfig(level=logging.INFO, format=f"[{rank}] %(message)s")
    folder = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "verdicts"
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
    verdicts, judge = Verdicts(folder, rank), Judge(patience=1, seconds=12)
    for epoch in range(3):
        loss = train_epoch(model, rank, world, epoch)
        if rank == 0:
            score, stop = judge.assess(model)
            verdicts.publish(epoch, stop, score)
        verdict = verdicts.wait(epoch)
        log.info("epoch %d: loss %.3f, judged %.3f", epoch, loss, verdict["score"])
        if verdict["stop"]:
            break
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
