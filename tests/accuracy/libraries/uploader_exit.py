# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# outcome_any = ["hang", "slow"]
# causes_any = ["HD701"]
# culprits = [0]
# lines = [60, 65, 80, 82, 83, 131]
# branch = ["self.rejected"]
# source = "https://github.com/facebookresearch/fairseq/issues/4619"
# ///
"""Segmentation training that uploads samples and metrics from a thread on rank 0.

When the service rejected something, close() reports it and forgets to send the thread its end mark; the thread is no daemon,
so rank 0's interpreter never ends while the other ranks are long gone.
"""
import json
import logging
import queue
import threading
import time
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("seg")


@dataclass
class TrackConfig:
    project: str = "roads"
    max_bytes: int = 900
    every: int = 3
    steps: int = 18


class QuotaExceeded(RuntimeError):
    pass


class TrackingService:
    """Stand-in for the tracking server's client."""

    def __init__(self, cfg):
        self.cfg, self.accepted = cfg, 0

    def post(self, kind, payload):
        body = json.dumps(payload)
        if len(body) > self.cfg.max_bytes:
            raise QuotaExceeded(f"{kind}: {len(body)} bytes")
        time.sleep(0.02)
        self.accepted += 1


class Uploader:
    def __init__(self, service):
        self.service, self.jobs, self.rejected = service, queue.Queue(), []
        self.thread = threading.Thread(target=self._run, name="uploader")
        self.thread.start()

    def _run(self):
        while True:
            job = self.jobs.get()
            if job is None:
                return
            try:
                self.service.post(*job)
            except QuotaExceeded as e:
                self.rejected.append(str(e))
            finally:
                self.jobs.task_done()

    def send(self, kind, payload):
        self.jobs.put((kind, payload))

    def close(self):
        self.jobs.join()
        if self.rejected:
            log.warning("%d uploads were rejected, e.g. %s", len(self.rejected), self.rejected[0])
            return
        self.jobs.put(None)
        self.thread.join()


class NoUploader:
    def send(self, kind, payload):
        pass

    def close(self):
        pass


class SegTrainer:
    def __init__(self, cfg, uploader):
        self.cfg, self.uploader, self.rank = cfg, uploader, dist.get_rank()
        torch.manual_seed(0)
        self.model = DDP(torch.nn.Conv2d(1, 2, 3, padding=1))
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.rng = torch.Generator().manual_seed(self.rank)

    def sample(self, step):
        size = 16 if step < 12 else 24
        image = torch.randn(2, 1, size, size, generator=self.rng)
        return image, (image[:, 0] > 0).long()

    def step(self, step):
        image, mask = self.sample(step)
        logits = self.model(image)
        loss = torch.nn.functional.cross_entropy(logits, mask)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        if step % self.cfg.every == 0:
            self.uploader.send("metrics", {"step": step, "loss": loss.item()})
            self.uploader.send("mask", {"step": step, "rows": logits.argmax(1)[0].tolist()})
        return loss.item()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    cfg = TrackConfig()
    rank = dist.get_rank()
    uploader = Uploader(TrackingService(cfg)) if rank == 0 else NoUploader()
    trainer = SegTrainer(cfg, uploader)
    for step in range(cfg.steps):
        loss = trainer.step(step)
    uploader.close()
    dist.barrier()
    dist.destroy_process_group()
    log.info("[rank %d] finished, loss %.4f", rank, loss)


if __name__ == "__main__":
    main()
