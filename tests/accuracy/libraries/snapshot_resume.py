# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 8"
# requires = ["torchsnapshot"]
# outcome = "hang"
# causes_any = ["HD109", "HD101"]
# culprits_any = [[0, 1], [2, 3, 4, 5, 6, 7]]
# lines = [90, 91, 93, 94, 98, 115]
# branch = ["latest is None", "latest is not None"]
# source = "https://github.com/meta-pytorch/tnt/pull/936"
# ///
"""Recommender training with torchsnapshot on node-local scratch disks.

Each rank names a folder of its node, but torchsnapshot takes rank 0's path for all, so after the restart of the phase only
ranks 0 and 1 find a snapshot: they enter Snapshot.restore, a collective, and the others begin anew.
"""
import logging
import re
import tempfile
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torchsnapshot import Snapshot, StateDict

log = logging.getLogger("recsys")


@dataclass
class RecConfig:
    users: int = 50
    dim: int = 8
    steps: int = 6
    ranks_per_node: int = 2
    save_every: int = 3


class Scratch:
    """The local disk of a node."""

    def __init__(self, root, rank, cfg):
        self.folder = root / f"node{rank // cfg.ranks_per_node}"
        self.folder.mkdir(exist_ok=True)

    def path(self, phase, step):
        return self.folder / f"{phase}-step{step:04d}"

    def latest(self, phase):
        found = [p for p in self.folder.iterdir() if re.fullmatch(rf"{phase}-step\d+", p.name)]
        return max(found, default=None)


class TwoTower(torch.nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.users = torch.nn.Embedding(cfg.users, cfg.dim)
        self.items = torch.nn.Embedding(cfg.users, cfg.dim)

    def forward(self, u, i):
        return (self.users(u) * self.items(i)).sum(-1)


class RecTrainer:
    def __init__(self, cfg, scratch):
        self.cfg, self.scratch, self.rank = cfg, scratch, dist.get_rank()
        torch.manual_seed(self.rank)
        self.model = TwoTower(cfg)
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.progress = StateDict(step=0)

    def app_state(self):
        return {"model": self.model, "progress": self.progress}

    def step(self):
        u, i = torch.randint(self.cfg.users, (2, 8))
        loss = (self.model(u, i) - 1).pow(2).mean()
        self.opt.zero_grad()
        loss.backward()
        for p in self.model.parameters():
            dist.all_reduce(p.grad)
        self.opt.step()
        self.progress["step"] += 1
        return loss.item()

    def save(self, phase):
        Snapshot.take(str(self.scratch.path(phase, self.progress["step"])), self.app_state())

    def resume(self, phase):
        latest = self.scratch.latest(phase)
        if latest is None:
            log.info("[rank %d] nothing to resume from", self.rank)
            return
        Snapshot(str(latest)).restore(self.app_state())

    def phase(self, name):
        for _ in range(self.cfg.steps):
            loss = self.step()
            if self.progress["step"] % self.cfg.save_every == 0:
                self.save(name)
        return loss


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    box = [tempfile.mkdtemp(prefix="recsys-") if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(box, src=0)
    cfg = RecConfig()
    scratch = Scratch(Path(box[0]), dist.get_rank(), cfg)
    trainer = RecTrainer(cfg, scratch)
    loss = trainer.phase("pretrain")
    dist.barrier()
    trainer.resume("pretrain")
    trainer.phase("finetune")
    log.info("[rank %d] loss %.4f", trainer.rank, loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
