# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "healthy"
# source = "https://github.com/KempnerInstitute/KempnerForge/pull/105"
# ///
"""Background checkpoints with a group of their own; the last one is still being written when training ends.

The threads' collectives use their own gloo group, so the order against the training's does not matter; the exit waits for
the upload for some seconds.
"""
import concurrent.futures
import io
import logging
import time
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

log = logging.getLogger("train")


@dataclass
class SaveConfig:
    every: int = 12
    steps: int = 36
    parts: int = 30
    seconds_per_part: float = 0.12


class Uploader:
    """Computes a checksum per part, as the object store asks for."""

    def __init__(self, cfg, rank):
        self.cfg, self.rank = cfg, rank

    def put(self, payload):
        total = 0
        for part in range(self.cfg.parts):
            end = time.monotonic() + 0.03
            while time.monotonic() < end:
                total = (total * 31 + len(payload) + part) % 1_000_003
            time.sleep(self.cfg.seconds_per_part * (1 + 0.3 * self.rank))
        return total


class AsyncSaver:
    def __init__(self, cfg):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.group = dist.new_group(backend="gloo", timeout=timedelta(minutes=30))
        self.uploader = Uploader(cfg, self.rank)
        self.pool = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="saver")
        self.pending, self.manifest = None, {}

    def _commit(self, step, payload):
        digest = self.uploader.put(payload)
        digests = [None] * self.world
        dist.all_gather_object(digests, digest, group=self.group)
        self.manifest[step] = digests

    def save(self, step, state):
        self.wait()
        buffer = io.BytesIO()
        torch.save(state, buffer)
        self.pending = self.pool.submit(self._commit, step, buffer.getvalue())

    def wait(self):
        if self.pending is not None:
            self.pending.result()
            self.pending = None


class Trainer:
    def __init__(self, cfg):
        self.cfg, self.saver = cfg, AsyncSaver(cfg)
        torch.manual_seed(0)
        self.net = torch.nn.Linear(16, 16)
        self.opt = torch.optim.Adam(self.net.parameters(), lr=1e-2)

    def step(self, n):
        x = torch.randn(8, 16)
        loss = (self.net(x) - x.roll(1, 1)).pow(2).mean()
        self.opt.zero_grad()
        loss.backward()
        for p in self.net.parameters():
            dist.all_reduce(p.grad)
        self.opt.step()
        if n % self.cfg.every == 0:
            self.saver.save(n, self.net.state_dict())
        time.sleep(0.05)
        return loss.item()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    trainer = Trainer(SaveConfig())
    for n in range(1, trainer.cfg.steps + 1):
        loss = trainer.step(n)
    trainer.saver.wait()
    if dist.get_rank() == 0:
        log.info("loss %.4f, %d checkpoints", loss, len(trainer.saver.manifest))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
