# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["numpy"]
# outcome = "healthy"
# watch = "--give-up-after 10"
# source = "https://github.com/mosaicml/composer/pull/3396"
# ///
"""Retrieval training: rank 1 builds a neighbour index in a child program for a good while, the others poll for it; ranks take turns at a lock and finish at different times."""
import argparse
import fcntl
import json
import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

log = logging.getLogger("retrieval")


def build_index(target, points, seconds):
    """k-means with restarts until the time budget is spent; the best restart is kept. Runs in its own process."""
    rng = np.random.default_rng(0)
    data = rng.normal(size=(points, 24)).astype(np.float32)
    best, restarts, until = (np.inf, None), 0, time.monotonic() + seconds
    while time.monotonic() < until:
        centres = data[rng.choice(points, 64, replace=False)]
        for _ in range(12):
            owner = ((data ** 2).sum(1)[:, None] - 2 * data @ centres.T + (centres ** 2).sum(1)).argmin(1)
            centres = np.stack([data[owner == c].mean(0) if (owner == c).any() else centres[c] for c in range(64)])
        cost = float(((data - centres[owner]) ** 2).sum())
        best = min(best, (cost, centres), key=lambda b: b[0])
        restarts += 1
        np.save(target.with_suffix(".partial.npy"), best[1])
    os.replace(target.with_suffix(".partial.npy"), target)
    print(json.dumps({"cost": best[0], "restarts": restarts}))


class TurnLock:
    def __init__(self, path):
        self.path = path

    def __enter__(self):
        self.handle = open(self.path, "a")
        fcntl.flock(self.handle, fcntl.LOCK_EX)
        return self

    def __exit__(self, *exc):
        fcntl.flock(self.handle, fcntl.LOCK_UN)
        self.handle.close()


class IndexProvider:
    def __init__(self, folder, rank):
        self.file, self.rank = folder / "index.npy", rank

    def get(self):
        if self.rank == 1 and not self.file.exists():
            cmd = [sys.executable, os.path.abspath(__file__), "--build", str(self.file)]
            done = subprocess.run(cmd, check=True, capture_output=True, text=True)
            log.info("index: %s", done.stdout.strip())
        waited = time.monotonic()
        while not self.file.exists():
            time.sleep(0.25)
        log.info("index after %.1f s", time.monotonic() - waited)
        return torch.from_numpy(np.load(self.file))


class Journal:
    """Background writer, closed properly."""

    def __init__(self, path):
        self.path, self.rows = path, []
        self.more, self.closing = threading.Condition(), False
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        while True:
            with self.more:
                self.more.wait_for(lambda: self.rows or self.closing)
                rows, self.rows = self.rows, []
                if not rows and self.closing:
                    return
            with open(self.path, "a") as f:
                f.writelines(json.dumps(r) + "\n" for r in rows)

    def add(self, **row):
        with self.more:
            self.rows.append(row)
            self.more.notify()

    def close(self):
        with self.more:
            self.closing = True
            self.more.notify()
        self.thread.join()


def export(folder, rank, model, rounds):
    """Larger ranks export more; only one at a time may write."""
    with TurnLock(folder / "turn.lock"):
        blob = torch.nn.utils.parameters_to_vector(model.parameters()).detach().double()
        for _ in range(rounds * (rank + 1)):
            blob = blob.sort().values.sin()
        np.savez_compressed(folder / f"export-{rank}.npz", blob=blob.numpy())
    return float(blob.sum())


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--build", type=Path)
    args = ap.parse_args()
    if args.build:
        return build_index(args.build, points=6000, seconds=20)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s r{rank} %(message)s")
    dist.init_process_group("gloo", timeout=timedelta(minutes=10))
    folder = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "retrieval"
    folder.mkdir(parents=True, exist_ok=True)
    journal = Journal(folder / f"journal-{rank}.jsonl")
    centres = IndexProvider(folder, rank).get()
    dist.barrier()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(24, 256), torch.nn.ReLU(), torch.nn.Linear(256, 24))
    for step in range(120):
        x = torch.randn(64, 24)
        nearest = centres[torch.cdist(x, centres).argmin(1)]
        loss = (model(x) - nearest).pow(2).mean()
        model.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.data.sub_(p.grad, alpha=0.01 / world)
        journal.add(step=step, loss=loss.item())
    dist.barrier()
    log.info("exported %.4f", export(folder, rank, model, rounds=900))
    journal.close()
    dist.barrier()
    dist.destroy_process_group()
    log.info("done")


if __name__ == "__main__":
    main()
