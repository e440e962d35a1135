# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 5"
# outcome = "hang"
# causes_any = ["HD101", "HD109"]
# culprits = [3, 4]
# lines = [73, 93, 105, 106]
# branch = ["self.notice.exists()", "watcher.leaving()", "self.watcher.leaving()"]
# source = "https://github.com/pytorch/torchtitan/pull/1342"
# ///
"""Spot training on two nodes (3 and 2 processes): when the node agent announces that its machine is taken away, the loop writes
a distributed checkpoint and ends."""
import logging
import os
import pathlib
import tempfile
import threading
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("spot")


@dataclass
class Job:
    features: int = 10
    hidden: int = 16
    batch: int = 8
    steps: int = 400
    checkpoint_every: int = 150
    slots: tuple = (3, 2)
    scratch: pathlib.Path = pathlib.Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "spot"


def place(rank, slots):
    for node, size in enumerate(slots):
        if rank < size:
            return node, rank
        rank -= size


class NodeAgent(threading.Thread):
    """Stands for the cloud's agent that runs once per machine; the second machine is wanted back first."""

    notice_after = {0: 3600.0, 1: 4.0}

    def __init__(self, node, folder):
        super().__init__(daemon=True)
        self.node, self.folder = node, folder

    def run(self):
        time.sleep(self.notice_after[self.node])
        (self.folder / "termination-notice").touch()


class SpotWatcher:
    def __init__(self, job, rank):
        node, local = place(rank, job.slots)
        folder = job.scratch / f"node{node}"
        folder.mkdir(parents=True, exist_ok=True)
        self.notice = folder / "termination-notice"
        if local == 0:
            self.notice.unlink(missing_ok=True)
            NodeAgent(node, folder).start()

    def leaving(self):
        return self.notice.exists()


class Session:
    def __init__(self, job):
        self.job, self.rank = job, dist.get_rank()
        torch.manual_seed(0)
        self.model = DDP(nn.Sequential(nn.Linear(job.features, job.hidden), nn.ReLU(), nn.Linear(job.hidden, 2)))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.generator = torch.Generator().manual_seed(self.rank)
        self.watcher = SpotWatcher(job, self.rank)
        self.step = 0

    def batch(self):
        time.sleep(0.2)  # decoding
        x = torch.randn(self.job.batch, self.job.features, generator=self.generator)
        return x, (x.sum(1) > 0).long()

    def save(self, reason):
        target = self.job.scratch / f"step-{self.step}"
        dcp.save({"model": self.model.module.state_dict(), "step": self.step}, checkpoint_id=str(target))
        if self.rank == 0:
            log.info("saved %s (%s)", target, reason)

    def run(self):
        while self.step < self.job.steps:
            x, y = self.batch()
            loss = F.cross_entropy(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.step += 1
            if self.watcher.leaving():
                self.save("machine is leaving")
                return False
            if self.step % self.job.checkpoint_every == 0:
                self.save("regular")
        return True


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    finished = Session(Job()).run()
    log.info("rank %d finished=%s", dist.get_rank(), finished)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
