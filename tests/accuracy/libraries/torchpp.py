# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD102", "HD202", "HD101"]
# culprits = [2]
# lines = [47, 92, 96, 98, 104]
# branch = ["self.stopper.update(loss)", "self.stale >= self.patience"]
# source = "https://github.com/pytorch/torchtitan/issues/775"
# ///
"""torch.distributed.pipelining with ScheduleGPipe on three stages. Only the last stage sees losses, and only there early stopping
strikes: it leaves the loop while stages 0 and 1 run the next step."""
import logging
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

log = logging.getLogger("pp")


@dataclass
class RunConfig:
    width: int = 16
    batch: int = 8
    chunks: int = 4
    max_steps: int = 60
    patience: int = 3
    min_delta: float = 1e-3
    lr: float = 0.5


class EarlyStopping:
    def __init__(self, patience, min_delta):
        self.patience, self.min_delta = patience, min_delta
        self.best, self.stale = float("inf"), 0

    def update(self, value):
        if value is None:
            return False
        if value < self.best - self.min_delta:
            self.best, self.stale = value, 0
        else:
            self.stale += 1
        return self.stale >= self.patience


class Regressor(nn.Module):
    def __init__(self, width, last):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(width, width), nn.Tanh())
        self.out = nn.Linear(width, 1) if last else nn.Identity()

    def forward(self, x):
        return self.out(self.body(x))


class Trainer:
    def __init__(self, cfg, rank, world):
        self.cfg, self.rank, self.world = cfg, rank, world
        torch.manual_seed(rank)
        self.module = Regressor(cfg.width, rank == world - 1)
        self.stage = PipelineStage(self.module, rank, world, torch.device("cpu"))
        self.schedule = ScheduleGPipe(self.stage, n_microbatches=cfg.chunks, loss_fn=nn.MSELoss())
        self.optim = torch.optim.SGD(self.module.parameters(), lr=cfg.lr)
        self.gen = torch.Generator().manual_seed(11)
        self.stopper = EarlyStopping(cfg.patience, cfg.min_delta)

    def batch(self):
        x = torch.randn(self.cfg.batch, self.cfg.width, generator=self.gen)
        return x, x.mean(1, keepdim=True)

    def run_step(self):
        x, y = self.batch()
        self.optim.zero_grad()
        if self.rank == 0:
            self.schedule.step(x)
            loss = None
        elif self.rank == self.world - 1:
            losses = []
            self.schedule.step(target=y, losses=losses)
            loss = float(torch.stack(losses).mean())
        else:
            self.schedule.step()
            loss = None
        self.optim.step()
        return loss

    def fit(self):
        for step in range(self.cfg.max_steps):
            loss = self.run_step()
            if loss is not None and step % 5 == 0:
                log.info("step %d loss %.4f", step, loss)
            if self.stopper.update(loss):
                log.info("no progress for %d steps, stopping", self.cfg.patience)
                break
        return self.summary()

    def summary(self):
        norm = torch.stack([p.detach().norm() for p in self.module.parameters()]).norm().reshape(1)
        norms = [torch.zeros(1) for _ in range(self.world)]
        dist.all_gather(norms, norm)
        return [float(n) for n in norms]


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    trainer = Trainer(RunConfig(), dist.get_rank(), dist.get_world_size())
    log.info("norms %s", trainer.fit())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
