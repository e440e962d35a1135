# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["numpy"]
# outcome = "hang"
# causes_any = ["HD202", "HD201"]
# culprits = [2]
# lines = [46, 47, 58, 63, 66, 67, 68, 93]
# branch = ["np.isfinite", "isfinite"]
# source = "https://github.com/pytorch/torchdistx/pull/48"
# ///
"""Decentralised training: after each step ranks are paired at random and average their weights with their partner."""
import logging
import os
import random
import tempfile
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

log = logging.getLogger("gossip")


class ShardedSensorData:
    """Memory-mapped readings, one file a rank; the export writes dropped readings as NaN."""

    def __init__(self, root, rank, rows=256):
        self.path = root / f"sensor-{rank:02d}.npy"
        if not self.path.exists():
            self._export(rank, rows)
        self.rows = np.load(self.path, mmap_mode="r")

    def _export(self, rank, rows):
        rng = np.random.default_rng(500 + rank)
        table = rng.normal(size=(rows, 9)).astype(np.float32)
        dropped = {2: slice(180, 250)}.get(rank)
        if dropped is not None:
            table[dropped, 4] = np.nan
        np.save(self.path, table)

    def window(self, size):
        start = random.randrange(len(self.rows) - size)
        rows = self.rows[start:start + size]
        while not np.isfinite(rows).all():
            start = random.randrange(len(self.rows) - size)
            rows = self.rows[start:start + size]
        return torch.from_numpy(rows[:, :8].copy()), torch.from_numpy(rows[:, 8:].copy())


class PairwiseMixer:
    def __init__(self, rank, world, every):
        self.rank, self.world, self.every = rank, world, every

    def partner(self):
        order = list(range(self.world))
        random.shuffle(order)
        spot = order.index(self.rank)
        return order[spot ^ 1]

    def mix(self, model):
        peer = self.partner()
        flat = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
        theirs = torch.empty_like(flat)
        sent = dist.isend(flat, peer)
        dist.recv(theirs, peer)
        sent.wait()
        torch.nn.utils.vector_to_parameters((flat + theirs) / 2, model.parameters())
        return peer


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def train(root, steps=200, batch=24):
    rank, world = dist.get_rank(), dist.get_world_size()
    seed_everything(1234)
    data = ShardedSensorData(root, rank)
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    mixer = PairwiseMixer(rank, world, every=1)
    for step in range(steps):
        x, y = data.window(batch)
        loss = torch.nn.functional.mse_loss(model(x), y)
        model.zero_grad()
        loss.backward()
        for p in model.parameters():
            p.data.sub_(p.grad, alpha=0.05)
        if step % mixer.every == 0:
            peer = mixer.mix(model)
            log.debug("step %d mixed with %d", step, peer)
        if step % 20 == 0:
            log.info("step %d loss %.4f", step, loss.item())


def main():
    rank = int(os.environ["RANK"])
    logging.basicConfig(level=logging.INFO, format=f"[r{rank}] %(message)s")
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    root = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "sensor_export"
    root.mkdir(parents=True, exist_ok=True)
    train(root)
    dist.barrier()
    log.info("finished")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
