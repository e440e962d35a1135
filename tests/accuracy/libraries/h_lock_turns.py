# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["filelock"]
# outcome = "healthy"
# source = "https://github.com/huggingface/datasets/pull/547"
# ///
"""Each rank unpacks its part of an archive under one file lock, so they take turns; a failed unpacking is tried again.

Polling for the lock, an exception that is handled without harm, and ranks that leave the loop at different times, yet all
come to the same collectives.
"""
import logging
import tempfile
import time
import zlib
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from filelock import FileLock

log = logging.getLogger("unpack")


@dataclass
class ArchiveConfig:
    members: int = 4
    seconds: float = 0.5
    rounds: int = 2
    steps: int = 10


class BrokenMember(OSError):
    pass


class Archive:
    def __init__(self, folder, cfg, rank):
        self.folder, self.cfg, self.rank = folder, cfg, rank
        self.lock = FileLock(str(folder / "archive.lock"))
        self.tries = 0

    def member(self, i):
        end, value = time.monotonic() + self.cfg.seconds, 0
        while time.monotonic() < end:
            value = zlib.crc32(str(value).encode())
        self.tries += 1
        if self.rank == 2 and self.tries == 3:
            raise BrokenMember(f"member {i}: crc mismatch")
        return [i, value % 100]

    def unpack(self):
        done = []
        while len(done) < self.cfg.members:
            try:
                with self.lock:
                    done.append(self.member(len(done)))
            except BrokenMember as e:
                log.warning("[rank %d] %s, trying again", self.rank, e)
        return done


class Job:
    def __init__(self, cfg, folder):
        self.cfg, self.rank = cfg, dist.get_rank()
        self.archive = Archive(folder, cfg, self.rank)
        torch.manual_seed(0)
        self.net = torch.nn.Linear(2, 2)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=1e-4)

    def agree(self, rows):
        counts = [None] * dist.get_world_size()
        dist.all_gather_object(counts, len(rows))
        return rows[: min(counts)]

    def fit(self, rows):
        for step in range(self.cfg.steps):
            x = torch.tensor(rows[step % len(rows)], dtype=torch.float32)
            loss = (self.net(x) - x).pow(2).mean()
            self.opt.zero_grad()
            loss.backward()
            for p in self.net.parameters():
                dist.all_reduce(p.grad)
            self.opt.step()
        return loss.item()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    logging.getLogger("filelock").setLevel(logging.WARNING)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    box = [tempfile.mkdtemp(prefix="unpack-") if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(box, src=0)
    job = Job(ArchiveConfig(), Path(box[0]))
    for n in range(job.cfg.rounds):
        rows = job.agree(job.archive.unpack())
        loss = job.fit(rows)
        log.info("[rank %d] round %d loss %.4f", job.rank, n, loss)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
