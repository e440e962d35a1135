# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD112", "HD101"]
# culprits = [3]
# lines = [53, 64, 65, 69, 81]
# source = "https://github.com/ai2cm/ace/pull/1398"
# ///
"""Trains on four nodes with a maintenance calendar; a node that is about to be drained writes a checkpoint in time."""
import json
import logging
import os
import pathlib
import signal
import tempfile
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("drain")
CALENDAR = json.dumps({
    "node-a": {"drain_in": 86400}, "node-b": {"drain_in": 43200},
    "node-c": {"drain_in": 43200}, "node-d": {"drain_in": 63},
})


@dataclass
class TrainConfig:
    nodes: tuple = ("node-a", "node-b", "node-c", "node-d")
    width: int = 96
    steps: int = 100_000
    save_every: int = 5_000
    margin: float = 60.0
    horizon: float = 3600.0


class Checkpointer:
    """Each rank writes its part; the parts become visible together."""

    def __init__(self, root, model):
        self.root = pathlib.Path(root)
        self.root.mkdir(parents=True, exist_ok=True)
        self.model = model
        self.group = dist.new_group(backend="gloo")

    def checkpoint(self, reason, step):
        rank = dist.get_rank()
        part = self.root / f"{reason}-{step:07d}.{rank}.part"
        torch.save(self.model.state_dict(), part)
        dist.barrier(group=self.group)
        part.rename(part.with_suffix(".pt"))
        log.info("rank %d wrote %s at step %d", rank, reason, step)


class DrainGuard:
    def __init__(self, trainer, horizon, margin):
        self.trainer, self.horizon, self.margin = trainer, horizon, margin

    def arm(self, seconds):
        if seconds < self.horizon:
            signal.signal(signal.SIGALRM, self.on_alarm)
            signal.setitimer(signal.ITIMER_REAL, seconds - self.margin)

    def on_alarm(self, signum, frame):
        log.warning("node of rank %d will be drained", dist.get_rank())
        self.trainer.checkpoint(reason="drain")


class Trainer:
    def __init__(self, cfg, root):
        torch.manual_seed(7)
        self.cfg = cfg
        self.model = nn.Sequential(nn.Linear(cfg.width, cfg.width), nn.Tanh(), nn.Linear(cfg.width, 1))
        self.saver = Checkpointer(root, self.model)
        self.step = 0

    def checkpoint(self, reason):
        self.saver.checkpoint(reason, self.step)

    def train_step(self):
        x = torch.randn(64, self.cfg.width)
        loss = self.model(x).pow(2).mean()
        self.model.zero_grad()
        loss.backward()
        for p in self.model.parameters():
            dist.all_reduce(p.grad)
            p.data.add_(p.grad, alpha=-0.01 / dist.get_world_size())
        return loss.item()

    def run(self):
        for self.step in range(1, self.cfg.steps + 1):
            loss = self.train_step()
            if self.step % self.cfg.save_every == 0:
                self.checkpoint(reason="regular")
            if self.step % 500 == 0 and dist.get_rank() == 0:
                log.info("step %d loss %.4f", self.step, loss)


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    cfg = TrainConfig()
    root = os.path.join(os.environ.get("TMPDIR", tempfile.gettempdir()), f"ckpt-{os.getppid()}")
    trainer = Trainer(cfg, root)
    node = cfg.nodes[dist.get_rank() % len(cfg.nodes)]
    DrainGuard(trainer, cfg.horizon, cfg.margin).arm(json.loads(CALENDAR)[node]["drain_in"])
    trainer.run()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
