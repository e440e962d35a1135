# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD701"]
# culprits = [0]
# lines = [34, 41, 44, 47, 112, 114, 117]
# branch = ["self.best < target", "rank == 0"]
# source = "https://github.com/mlbench/mlbench-core/issues/26"
# ///
"""Benchmark harness: trains until a goal is reached, metrics go to the dashboard through an uploader of the reporting process."""
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

log = logging.getLogger("bench")


class Dashboard:
    """Receives events and writes them in batches, so that a slow disk never delays a step."""

    def __init__(self, path, flush_every=5):
        self.path, self.flush_every = path, flush_every
        self.queue = queue.Queue()
        self.worker = threading.Thread(target=self._upload_loop, name="dashboard-upload")
        self.worker.start()

    def post(self, **event):
        self.queue.put(event)

    def close(self):
        self.queue.put(None)
        self.worker.join()

    def _upload_loop(self):
        pending = []
        while True:
            event = self.queue.get()
            if event is not None:
                pending.append(event)
            if event is None or len(pending) >= self.flush_every:
                with open(self.path, "a") as f:
                    f.writelines(json.dumps(e) + "\n" for e in pending)
                pending = []
            if event is None:
                return


class NullDashboard:
    def post(self, **event):
        pass

    def close(self):
        pass


class LogisticGoal:
    def __init__(self, features=20):
        gen = torch.Generator().manual_seed(1)
        self.weights = torch.randn(features, generator=gen)
        self.features = features

    def sample(self, n, gen):
        x = torch.randn(n, self.features, generator=gen)
        return x, (x @ self.weights > 0).float()


class Benchmark:
    def __init__(self, dashboard):
        self.rank = dist.get_rank()
        self.dashboard = dashboard
        self.task = LogisticGoal()
        torch.manual_seed(0)
        self.model = DDP(nn.Linear(self.task.features, 1))
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.5)
        self.gen = torch.Generator().manual_seed(10 + self.rank)
        self.best = float("inf")

    def train_epoch(self, steps=20):
        for _ in range(steps):
            x, y = self.task.sample(32, self.gen)
            loss = nn.functional.binary_cross_entropy_with_logits(self.model(x).squeeze(1), y)
            loss.backward()
            self.opt.step()
            self.opt.zero_grad()
        return loss.detach()

    def validate(self):
        x, y = self.task.sample(64, self.gen)
        with torch.no_grad():
            wrong = ((self.model.module(x).squeeze(1) > 0).float() != y).float().sum()
        count = torch.stack([wrong, torch.tensor(64.0)])
        dist.all_reduce(count)
        return (count[0] / count[1]).item()

    def run(self, target, max_epochs):
        for epoch in range(max_epochs):
            loss = self.train_epoch()
            error = self.validate()
            self.best = min(self.best, error)
            self.dashboard.post(epoch=epoch, loss=loss.item(), error=error)
            log.info("epoch %d error %.3f", epoch, error)
            if self.best < target:
                log.info("goal of %.2f reached after %d epochs", target, epoch + 1)
                return self.best
        self.dashboard.post(final=self.best)
        self.dashboard.close()
        return self.best


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO, format=f"[{rank}] %(message)s")
    root = pathlib.Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / f"bench-{os.environ['TORCHELASTIC_RUN_ID'][:8]}"
    root.mkdir(parents=True, exist_ok=True)
    dashboard = Dashboard(root / "metrics.jsonl") if rank == 0 else NullDashboard()
    best = Benchmark(dashboard).run(target=0.12, max_epochs=40)
    log.info("best error %.3f", best)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
