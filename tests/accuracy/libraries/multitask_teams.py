# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 5"
# requires = []
# outcome = "hang"
# causes_any = ["HD303", "HD101"]
# culprits = [3]
# lines = [56, 58, 89, 90, 91, 92, 107]
# branch = ["self.scratch.has(task.name)", "used + size > self.quota"]
# source = "https://github.com/mstar-project/mstar/pull/143"
# ///
"""Multi-task training: every task head is trained by a team of ranks, the trunk by everybody; data is staged to host scratch first."""
import logging
import os
import pathlib
import tempfile
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn

log = logging.getLogger("multitask")
WIDTH = 24


@dataclass(frozen=True)
class Task:
    name: str
    members: tuple
    outputs: int
    samples: int


PLAN = [
    Task("depth", (0, 4), 1, 900),
    Task("normals", (1, 2, 3), 3, 400),
    Task("shading", (0, 2, 4), 1, 250),
]
SCRATCH_KB = {"a100-17": 400, "a100-18": 400, "v100-03": 100}
HOST_OF_RANK = ["a100-17", "a100-17", "a100-18", "v100-03", "a100-18"]


class Scratch:
    """Local copies of the task data; what does not fit on a host stays on the shared store."""

    def __init__(self, root, host):
        self.folder = root / host / f"rank{dist.get_rank()}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.quota = SCRATCH_KB[host] * 1024

    def stage(self, tasks):
        used = 0
        for task in tasks:
            size = task.samples * WIDTH * 4
            if used + size > self.quota:
                log.info("%s does not fit (%d of %d bytes used)", task.name, used, self.quota)
                continue
            data = np.random.default_rng(task.samples).standard_normal((task.samples, WIDTH), dtype=np.float32)
            np.save(self.folder / f"{task.name}.npy", data)
            used += size

    def has(self, name):
        return (self.folder / f"{name}.npy").exists()

    def load(self, name):
        return torch.from_numpy(np.load(self.folder / f"{name}.npy"))


def average(params, group):
    flat = torch.cat([p.grad.flatten() for p in params])
    dist.all_reduce(flat, group=group)
    flat /= dist.get_world_size(group)
    for p, piece in zip(params, flat.split([p.numel() for p in params])):
        p.grad.copy_(piece.view_as(p))


class MultiTaskTrainer:
    def __init__(self, scratch, batch=8):
        self.rank, self.scratch, self.batch = dist.get_rank(), scratch, batch
        torch.manual_seed(0)
        self.trunk = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH), nn.GELU())
        self.heads = {t.name: nn.Linear(WIDTH, t.outputs) for t in PLAN}
        self.opts = {n: torch.optim.SGD(h.parameters(), lr=0.05) for n, h in self.heads.items()}
        self.trunk_opt = torch.optim.SGD(self.trunk.parameters(), lr=0.05)
        self.groups, self.data = {}, {}

    def form_teams(self):
        for task in sorted(PLAN, key=lambda t: t.name):
            if not self.scratch.has(task.name):
                continue
            self.groups[task.name] = dist.new_group(list(task.members))
            if self.rank in task.members:
                self.data[task.name] = self.scratch.load(task.name)
        log.info("teams: %s", sorted(self.data))

    def train_task(self, task, number):
        x = self.data[task.name][torch.randint(0, task.samples, (self.batch,))]
        loss = (self.heads[task.name](self.trunk(x)) - x[:, : task.outputs]).pow(2).mean()
        loss.backward()
        average(list(self.heads[task.name].parameters()), self.groups[task.name])
        self.opts[task.name].step()
        self.opts[task.name].zero_grad()
        return round(loss.item(), 4)

    def run(self, rounds):
        self.form_teams()
        for number in range(rounds):
            report = {t.name: self.train_task(t, number) for t in PLAN if t.name in self.data}
            average(list(self.trunk.parameters()), dist.group.WORLD)
            self.trunk_opt.step()
            self.trunk_opt.zero_grad()
            log.info("round %d %s", number, report)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO, format=f"[{rank}] %(message)s")
    root = pathlib.Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / f"mt-{os.environ['TORCHELASTIC_RUN_ID'][:8]}"
    scratch = Scratch(root, HOST_OF_RANK[rank])
    scratch.stage(sorted(PLAN, key=lambda t: rank not in t.members))
    MultiTaskTrainer(scratch).run(20)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
