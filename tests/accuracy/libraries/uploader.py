# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD701"]
# culprits = [2]
# lines = [65, 77, 79, 119]
# branch = ["self.failed"]
# source = "https://github.com/open-mmlab/mmdetection/issues/331"
# ///
"""Training ends everywhere, the group is destroyed, and rank 2 does not exit: an upload of it had failed, so close() returns before
the sentinel is put, and the (non-daemon) uploader thread waits in queue.get for ever."""
import logging
import queue
import shutil
import tempfile
import threading
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("uploader")


@dataclass
class ArtifactConfig:
    root: Path
    steps: int = 24
    every: int = 6
    quota_bytes: int = 60_000
    lr: float = 0.02


class ArtifactStore:
    """A folder that stands for the bucket; every rank has a quota."""

    def __init__(self, cfg, rank):
        self.folder, self.quota = cfg.root / f"rank{rank}", cfg.quota_bytes
        self.folder.mkdir(parents=True, exist_ok=True)

    def used(self):
        return sum(p.stat().st_size for p in self.folder.iterdir())

    def put(self, path):
        size = path.stat().st_size
        if self.used() + size > self.quota:
            raise OSError(122, "quota exceeded", str(path))
        shutil.copy(path, self.folder / path.name)


class Uploader:
    def __init__(self, store):
        self.store, self.queue, self.failed = store, queue.Queue(), []
        self.thread = threading.Thread(target=self.work, name="artifact-uploader")
        self.thread.start()

    def submit(self, path):
        self.queue.put(path)

    def work(self):
        while True:
            path = self.queue.get()
            if path is None:
                return
            try:
                self.store.put(path)
            except OSError as e:
                log.warning("upload of %s failed: %s", path.name, e)
                self.failed.append(path)

    def close(self):
        while self.queue.unfinished_tasks and not self.queue.empty():
            threading.Event().wait(0.05)
        if self.failed:
            log.error("%d artifacts were not uploaded and stay in %s", len(self.failed), self.failed[0].parent)
            return
        self.queue.put(None)
        self.thread.join()


class Recorder:
    """Keeps the hardest samples of the rank beside the weights."""

    def __init__(self, cfg, rank):
        self.cfg, self.rank = cfg, rank
        self.local = Path(tempfile.mkdtemp(prefix=f"artifacts{rank}-"))
        self.uploader = Uploader(ArtifactStore(cfg, rank))

    def record(self, step, model, hard):
        path = self.local / f"step{step}.pt"
        torch.save({"model": model.state_dict(), "hard": hard}, path)
        self.uploader.submit(path)

    def finish(self):
        self.uploader.close()


def train(cfg, rank, world):
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))
    optim = torch.optim.SGD(model.parameters(), lr=cfg.lr)
    recorder = Recorder(cfg, rank)
    gen = torch.Generator().manual_seed(rank)
    for step in range(1, cfg.steps + 1):
        x = torch.randn(32, 6, generator=gen) * (3.0 if rank == 2 else 1.0)
        loss = (model(x) - x.abs().sum(1, keepdim=True)).pow(2)
        optim.zero_grad()
        loss.mean().backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        optim.step()
        if step % cfg.every == 0:
            recorder.record(step, model, x[(loss > 5).squeeze(1)].repeat(60, 1))
            if rank == 0:
                log.info("step %d loss %.3f", step, loss.mean().item())
    recorder.finish()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    rank, world = dist.get_rank(), dist.get_world_size()
    box = [tempfile.mkdtemp(prefix="bucket-") if rank == 0 else None]
    dist.broadcast_object_list(box, src=0)
    train(ArtifactConfig(Path(box[0])), rank, world)
    dist.barrier()
    dist.destroy_process_group()
    log.info("rank %d: done", rank)


if __name__ == "__main__":
    main()
