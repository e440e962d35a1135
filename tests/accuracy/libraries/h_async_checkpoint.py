# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "healthy"
# source = "https://github.com/KempnerInstitute/KempnerForge/issues/104"
# ///
"""Asynchronous checkpoints done right: the writer threads have a group of their own, rank 0's disk is slow, training goes on meanwhile.
At the end all wait some seconds for the last write; a daemon thread polls for a pre-emption notice that never comes."""
import logging
import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("ckpt")


@dataclass
class Config:
    out: Path = Path("ckpt")
    hidden: int = 16
    steps: int = 40
    every: int = 13
    slow_disk: float = 5.0


class PreemptionWatch(threading.Thread):
    def __init__(self, path: Path):
        super().__init__(daemon=True, name="preemption")
        self.path, self.noticed = path, threading.Event()

    def run(self):
        while not self.path.exists():
            time.sleep(0.5)
        self.noticed.set()


class Checkpointer:
    def __init__(self, cfg: Config):
        self.cfg, self.rank = cfg, dist.get_rank()
        self.group = dist.new_group(timeout=timedelta(minutes=30))
        self.thread = None
        cfg.out.mkdir(exist_ok=True)

    def _save(self, step, state):
        if self.rank == 0:
            time.sleep(self.cfg.slow_disk)
        torch.save(state, self.cfg.out / f"{step}-{self.rank}.pt")
        names = [None] * dist.get_world_size()
        dist.all_gather_object(names, f"{step}-{self.rank}.pt", group=self.group)
        if self.rank == 0:
            (self.cfg.out / f"{step}.index").write_text("\n".join(names))

    def save(self, step, model):
        self.wait()
        state = {k: v.clone() for k, v in model.state_dict().items()}
        self.thread = threading.Thread(target=self._save, args=(step, state), name=f"save-{step}")
        self.thread.start()

    def wait(self):
        if self.thread is not None:
            self.thread.join()
            self.thread = None


class Trainer:
    def __init__(self, cfg: Config):
        self.cfg, self.rank, self.world = cfg, dist.get_rank(), dist.get_world_size()
        torch.manual_seed(0)
        self.model = nn.Linear(cfg.hidden, cfg.hidden)
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.checkpointer, self.watch = Checkpointer(cfg), PreemptionWatch(cfg.out / "preempt")
        self.watch.start()

    def fit(self):
        for step in range(1, self.cfg.steps + 1):
            x = torch.randn(8, self.cfg.hidden, generator=torch.Generator().manual_seed(step * 3 + self.rank))
            loss = (self.model(x) - x).pow(2).mean()
            self.opt.zero_grad()
            loss.backward()
            for p in self.model.parameters():
                dist.all_reduce(p.grad)
                p.grad /= self.world
            self.opt.step()
            if step % self.cfg.every == 0 and not self.watch.noticed.is_set():
                self.checkpointer.save(step, self.model)
            time.sleep(0.1)
        self.checkpointer.wait()
        dist.barrier()
        return loss.item()


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    loss = Trainer(Config()).fit()
    log.info("[rank %d] loss %.4f", dist.get_rank(), loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
