# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4 --max-restarts 1"
# outcome = "hang"
# causes_any = ["HD102"]
# culprits_any = [[2]]
# lines = [54, 59, 89, 98]
# branch = ["self.path.exists()", "range(self.snapshot.epoch, self.cfg.epochs)"]
# source = "https://github.com/mlcommons/algorithmic-efficiency/issues/412"
# ///
"""Elastic training with one snapshot a rank. In the first attempt rank 2 fails while writing its snapshot and torchrun restarts all.
Three ranks go on from their snapshots, rank 2 finds none and begins at epoch 0; the ranks pair up across epochs until three of them are through."""
import logging
import os
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("elastic")


@dataclass
class TrainConfig:
    epochs: int = 6
    steps: int = 5
    hidden: int = 12
    keep: Path = Path("snapshots")
    scratch_quota: int = 40_000


class Scratch:
    """Node-local scratch space; the first attempt shares rank 2's with a profiler trace that nearly fills it."""

    def __init__(self, cfg: TrainConfig, rank: int):
        attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
        self.used = 39_000 if rank == 2 and attempt == 0 else 0
        self.quota = cfg.scratch_quota

    def reserve(self, size: int):
        if self.used + size > self.quota:
            raise OSError(28, "No space left on device")


class Snapshot:
    def __init__(self, cfg: TrainConfig, rank: int):
        self.path = cfg.keep / f"rank{rank}.pt"
        self.scratch = Scratch(cfg, rank)
        self.epoch = 0

    def restore(self, model, opt):
        if not self.path.exists():
            return
        state = torch.load(self.path)
        model.load_state_dict(state["model"])
        opt.load_state_dict(state["opt"])
        self.epoch = state["epoch"]

    def store(self, model, opt, epoch):
        state = {"model": model.state_dict(), "opt": opt.state_dict(), "epoch": epoch}
        self.scratch.reserve(sum(p.numel() * 4 for p in model.parameters()))
        tmp = self.path.with_suffix(".tmp")
        torch.save(state, tmp)
        tmp.rename(self.path)


class Trainer:
    def __init__(self, cfg: TrainConfig):
        self.cfg, self.rank, self.world = cfg, dist.get_rank(), dist.get_world_size()
        torch.manual_seed(3)
        self.model = nn.Sequential(nn.Linear(cfg.hidden, 4 * cfg.hidden), nn.ReLU(), nn.Linear(4 * cfg.hidden, cfg.hidden))
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.02, momentum=0.9)
        self.snapshot = Snapshot(cfg, self.rank)
        self.snapshot.restore(self.model, self.opt)

    def batches(self, epoch):
        g = torch.Generator().manual_seed(epoch * 100 + self.rank)
        for _ in range(self.cfg.steps):
            yield torch.randn(6, self.cfg.hidden, generator=g)

    def train_epoch(self, epoch):
        for x in self.batches(epoch):
            loss = (self.model(x) - x.sin()).pow(2).mean()
            self.opt.zero_grad()
            loss.backward()
            flat = torch.cat([p.grad.flatten() for p in self.model.parameters()])
            dist.all_reduce(flat)
            offset = 0
            for p in self.model.parameters():
                p.grad.copy_(flat[offset:offset + p.numel()].view_as(p) / self.world)
                offset += p.numel()
            self.opt.step()
        return loss.item()

    def run(self):
        for epoch in range(self.snapshot.epoch, self.cfg.epochs):
            loss = self.train_epoch(epoch)
            if epoch % 2 == 1:
                self.snapshot.store(self.model, self.opt, epoch + 1)
            log.info("[rank %d] epoch %d loss %.4f", self.rank, epoch, loss)

    def publish(self):
        """All ranks hand their optimiser's size over, rank 0 writes the model card."""
        sizes = [None] * self.world
        dist.all_gather_object(sizes, len(self.opt.state_dict()["state"]))
        if self.rank == 0:
            (self.cfg.keep / "card.txt").write_text(f"ranks {sizes}")


def connect():
    """The agent's store outlives a restart, so the addresses of each attempt get keys of their own."""
    env = os.environ
    store = dist.TCPStore(env["MASTER_ADDR"], int(env["MASTER_PORT"]), is_master=False, timeout=timedelta(minutes=30))
    store = dist.PrefixStore(f"attempt{env['TORCHELASTIC_RESTART_COUNT']}", store)
    dist.init_process_group("gloo", store=store, rank=int(env["RANK"]), world_size=int(env["WORLD_SIZE"]), timeout=timedelta(minutes=30))


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    connect()
    cfg = TrainConfig()
    cfg.keep.mkdir(exist_ok=True)
    dist.barrier()
    trainer = Trainer(cfg)
    trainer.run()
    trainer.publish()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
