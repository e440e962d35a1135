# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD109", "HD101"]
# culprits_any = [[0, 1], [0], [1], [2, 3]]
# lines = [46, 47, 70, 75, 77]
# branch = ["replica == 0", "get_local_rank(\"dp\") == 0", "self.writer"]
# source = "https://github.com/pytorch/pytorch/issues/152310"
# ///
"""A 2 x 2 mesh (dp, tp). Only the first replica writes the checkpoint, with dcp.save and no process_group: its planning gathers over the
whole world, which the second replica never enters."""
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh


@dataclass
class JobConfig:
    steps: int = 20
    save_every: int = 6
    width: int = 8
    folder: Path = Path(tempfile.gettempdir()) / "dcp_replica"


class Checkpointer:
    def __init__(self, cfg, mesh):
        self.cfg, self.mesh = cfg, mesh
        self.writer = mesh.get_local_rank("dp") == 0

    def due(self, step):
        return step > 0 and step % self.cfg.save_every == 0

    def state(self, model, step):
        shard = self.mesh.get_local_rank("tp")
        return {f"shard{shard}": {k: v.detach() for k, v in model.state_dict().items()}, "step": step}

    def save(self, model, step):
        path = self.cfg.folder / f"step-{step}"
        if self.writer:
            dcp.save(self.state(model, step), checkpoint_id=str(path))


class Layer(nn.Module):
    def __init__(self, cfg, group):
        super().__init__()
        self.linear, self.group = nn.Linear(cfg.width, cfg.width), group

    def forward(self, x):
        out = self.linear(x).detach()
        dist.all_reduce(out, group=self.group)
        return self.linear(out)


class Job:
    def __init__(self, cfg):
        self.cfg, self.mesh = cfg, init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        self.model = Layer(cfg, self.mesh.get_group("tp"))
        self.checkpointer = Checkpointer(cfg, self.mesh)

    def step(self):
        self.model(torch.randn(2, self.cfg.width)).sum().backward()
        for p in self.model.parameters():
            dist.all_reduce(p.grad, group=self.mesh.get_group("dp"))
            p.grad = None

    def run(self):
        for step in range(self.cfg.steps):
            self.step()
            if self.checkpointer.due(step):
                self.checkpointer.save(self.model, step)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    Job(JobConfig()).run()
    dist.destroy_process_group()
