# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["filelock"]
# outcome = "hang"
# outcome_any = ["hang", "slow"]
# causes_any = ["HD504"]
# culprits = [2]
# lines = [57, 65, 67, 122]
# source = "https://github.com/modelscope/ms-swift/pull/5763"
# ///
"""Speech training that renews its feature statistics every few steps, under a file lock.

The first rank to get the lock (rank 2: the smallest validation set) computes them with an all_reduce; the other ranks, which
should take part in it, wait for the lock.
"""
import json
import logging
import math
import tempfile
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from filelock import FileLock

log = logging.getLogger("asr")


@dataclass
class AsrConfig:
    features: int = 20
    hidden: int = 16
    steps: int = 24
    renew_every: int = 6
    batch: int = 8
    val_batches: tuple = (60, 50, 4, 40)


class FeatureStats:
    """Mean and deviation of the filter banks, shared by the ranks of a host through a json file."""

    def __init__(self, folder, cfg):
        self.folder, self.cfg = folder, cfg
        self.sum = torch.zeros(cfg.features, dtype=torch.float64)
        self.square = torch.zeros(cfg.features, dtype=torch.float64)
        self.count = torch.zeros(1, dtype=torch.float64)

    def update(self, feats):
        self.sum += feats.double().sum(0)
        self.square += feats.double().pow(2).sum(0)
        self.count += len(feats)

    def measure(self):
        flat = torch.cat([self.sum, self.square, self.count])
        dist.all_reduce(flat)
        n = self.cfg.features
        mean = flat[:n] / flat[-1]
        var = flat[n:2 * n] / flat[-1] - mean ** 2
        return {"mean": mean.tolist(), "std": var.clamp_min(1e-8).sqrt().tolist()}

    def current(self, generation):
        path = self.folder / f"stats_{generation}.json"
        with FileLock(str(path) + ".lock"):
            if not path.exists():
                path.write_text(json.dumps(self.measure()))
            return json.loads(path.read_text())


class Encoder(torch.nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(cfg.features, cfg.hidden), torch.nn.Tanh(), torch.nn.Linear(cfg.hidden, 10))
        self.register_buffer("mean", torch.zeros(cfg.features))
        self.register_buffer("std", torch.ones(cfg.features))

    def normalise(self, stats):
        self.mean.copy_(torch.tensor(stats["mean"]))
        self.std.copy_(torch.tensor(stats["std"]))

    def forward(self, feats):
        return self.net((feats - self.mean) / self.std)


class AsrJob:
    def __init__(self, cfg, folder):
        self.cfg, self.rank, self.world = cfg, dist.get_rank(), dist.get_world_size()
        self.stats = FeatureStats(folder, cfg)
        self.model = Encoder(cfg)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.rng = torch.Generator().manual_seed(self.rank)

    def batch(self):
        return torch.randn(self.cfg.batch, self.cfg.features, generator=self.rng) * 2 + 1, torch.randint(10, (self.cfg.batch,), generator=self.rng)

    def train_step(self):
        x, y = self.batch()
        self.stats.update(x)
        loss = torch.nn.functional.cross_entropy(self.model(x), y)
        self.opt.zero_grad()
        loss.backward()
        grads = torch.cat([p.grad.flatten() for p in self.model.parameters()])
        dist.all_reduce(grads)
        torch.nn.utils.vector_to_parameters(torch.nn.utils.parameters_to_vector(self.model.parameters()) - 1e-3 * grads / self.world, self.model.parameters())
        return loss.item()

    @torch.no_grad()
    def validate(self):
        worst = -math.inf
        for _ in range(self.cfg.val_batches[self.rank]):
            x, y = self.batch()
            big = torch.randn(220, 220, generator=self.rng)
            worst = max(worst, float(torch.linalg.eigvalsh(big @ big.T)[-1]))
        return worst

    def run(self):
        for step in range(1, self.cfg.steps + 1):
            loss = self.train_step()
            if step % self.cfg.renew_every == 0:
                self.validate()
                self.model.normalise(self.stats.current(step // self.cfg.renew_every))
            if self.rank == 0:
                log.info("step %d loss %.4f", step, loss)


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    logging.getLogger("filelock").setLevel(logging.WARNING)
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    box = [tempfile.mkdtemp(prefix="asr-") if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(box, src=0)
    AsrJob(AsrConfig(), Path(box[0])).run()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
