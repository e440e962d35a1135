# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# outcome_any = ["hang", "slow"]
# causes_any = ["HD504", "HD103"]
# culprits = [0]
# lines = [47, 48, 64, 67, 94, 95, 96, 114]
# source = "https://github.com/cmb-chula/pylon/issues/1"
# ///
"""Ranks merge their evaluation statistics into one JSON file under an O_EXCL lock file. On rank 0 a NaN makes json refuse; the
exception passes the release, the caller logs it and goes to the barrier. The lock file stays; the others poll for it for ever."""
import json
import logging
import math
import os
import tempfile
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("eval")


@dataclass
class EvalConfig:
    out: Path
    rounds: int = 6
    classes: int = 5
    samples: int = 40
    stagger: float = 0.15
    poll: float = 0.05


class LockFile:
    def __init__(self, path, poll):
        self.path, self.poll = path, poll

    def acquire(self):
        while True:
            try:
                fd = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
            except FileExistsError:
                time.sleep(self.poll)
                continue
            os.write(fd, str(os.getpid()).encode())
            os.close(fd)
            return

    def release(self):
        os.unlink(self.path)


class StatsFile:
    def __init__(self, cfg):
        self.path = cfg.out / "per_class.json"
        self.lock = LockFile(cfg.out / "per_class.lock", cfg.poll)

    def merge(self, name, stats):
        self.lock.acquire()
        book = json.loads(self.path.read_text()) if self.path.exists() else {}
        book[name] = stats
        self.path.write_text(json.dumps(book, allow_nan=False, indent=1))
        self.lock.release()


class Evaluator:
    def __init__(self, cfg, rank, net):
        self.cfg, self.rank, self.net = cfg, rank, net
        self.gen = torch.Generator().manual_seed(rank + 1)
        self.file = StatsFile(cfg)

    def sample(self, index):
        x = torch.randn(self.cfg.samples, 8, generator=self.gen)
        y = torch.randint(self.cfg.classes, (self.cfg.samples,), generator=self.gen)
        if (self.rank, index) == (0, 3):
            y[y == 4] = 1  # none of the rare class in this draw
        return x, y

    @torch.no_grad()
    def recalls(self, index):
        x, y = self.sample(index)
        hit = self.net(x).argmax(1).eq(y).float()
        return {str(c): float(hit[y == c].mean()) for c in range(self.cfg.classes)}

    def run(self, index):
        stats = self.recalls(index)
        time.sleep(self.cfg.stagger * self.rank)  # spare the file server
        try:
            self.file.merge(f"{index}/{self.rank}", stats)
        except ValueError as e:
            log.warning("round %d: statistics of rank %d left out: %s", index, self.rank, e)
        known = [v for v in stats.values() if not math.isnan(v)]
        return sum(known) / len(known)


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    rank = dist.get_rank()
    box = [tempfile.mkdtemp(prefix="eval-") if rank == 0 else None]
    dist.broadcast_object_list(box, src=0)
    cfg = EvalConfig(Path(box[0]))
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, cfg.classes))
    evaluator = Evaluator(cfg, rank, net)
    for index in range(cfg.rounds):
        recall = torch.tensor([evaluator.run(index)])
        dist.all_reduce(recall)
        if rank == 0:
            log.info("round %d recall %.3f", index, recall.item() / dist.get_world_size())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
