# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD112", "HD101"]
# culprits = [0]
# lines = [44, 68, 79, 93]
# source = "https://github.com/kyutai-labs/pocket-tts/pull/277"
# ///
"""A walltime signal is delivered by the batch system to the first task only; its handler saves a sharded checkpoint, which gathers the
optimizer state of all ranks, while the others average gradients."""
import logging
import os
import signal
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

log = logging.getLogger("pretrain")


@dataclass
class JobConfig:
    features: int = 12
    hidden: int = 24
    batch: int = 8
    steps: int = 100000
    warn_seconds: float = 3.0
    lr: float = 0.01
    folder: str = field(default_factory=lambda: tempfile.mkdtemp(prefix="job-"))


class BatchSystem:
    """What `--signal=B:USR1@90` does on the cluster: the batch step's process gets the signal, no other task."""

    def __init__(self, cfg):
        self.cfg = cfg

    def arm(self):
        if int(os.environ["LOCAL_RANK"]) == 0:
            signal.setitimer(signal.ITIMER_REAL, self.cfg.warn_seconds)


class ShardedAdam:
    """Every rank keeps the moments of its part of the parameters."""

    def __init__(self, model, lr, rank, world):
        self.params, self.rank, self.world = list(model.parameters()), rank, world
        self.mine = [p for i, p in enumerate(self.params) if i % world == rank]
        self.opt = torch.optim.Adam(self.mine or self.params[:1], lr=lr)

    def step(self):
        for p in self.params:
            dist.all_reduce(p.grad)
            p.grad /= self.world
        self.opt.step()
        for i, p in enumerate(self.params):
            dist.broadcast(p.data, src=i % self.world)
        for p in self.params:
            p.grad = None

    def consolidate(self):
        parts = [None] * self.world
        dist.all_gather_object(parts, self.opt.state_dict())
        return parts


class Preemption:
    def __init__(self, trainer):
        self.trainer = trainer
        signal.signal(signal.SIGALRM, self.on_warning)

    def on_warning(self, signum, frame):
        log.warning("walltime is near, saving")
        self.trainer.save("walltime")


class Pretrainer:
    def __init__(self, cfg, rank, world):
        self.cfg, self.rank = cfg, rank
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(cfg.features, cfg.hidden), nn.Tanh(), nn.Linear(cfg.hidden, 1))
        self.opt = ShardedAdam(self.model, cfg.lr, rank, world)
        self.gen = torch.Generator().manual_seed(rank)
        self.preemption = Preemption(self)
        self.step = 0

    def save(self, tag):
        state = {"step": self.step, "model": self.model.state_dict(), "opt": self.opt.consolidate()}
        if self.rank == 0:
            torch.save(state, Path(self.cfg.folder) / f"{tag}.pt")

    def forward_backward(self):
        x = torch.randn(self.cfg.batch, self.cfg.features, generator=self.gen)
        loss = F.mse_loss(self.model(x).squeeze(-1), x.mean(1))
        loss.backward()
        return loss.item()

    def run(self):
        while self.step < self.cfg.steps:
            loss = self.forward_backward()
            self.opt.step()
            self.step += 1
            if self.step % 500 == 0:
                self.save(f"step-{self.step}")
                if self.rank == 0:
                    log.info("step %d loss %.4f", self.step, loss)


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    cfg = JobConfig()
    trainer = Pretrainer(cfg, dist.get_rank(), dist.get_world_size())
    BatchSystem(cfg).arm()
    trainer.run()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
