# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 8"
# outcome = "hang"
# causes_any = ["HD109", "HD101"]
# culprits_any = [[0, 4]]
# lines = [37, 43, 46, 63]
# branch = ["is_reporter", "get_local_rank() == 0"]
# source = "https://github.com/areal-project/AReaL/pull/187"
# ///
"""HSDP on a 2 x 4 mesh. The first rank of every node writes a gradient report; it fetches one full gradient for a histogram,
which is an all-gather over the node."""
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


@dataclass
class Config:
    width: int = 16
    layers: int = 2
    steps: int = 30
    report_every: int = 4
    shape: tuple = (2, 4)
    names: list = field(default_factory=lambda: ["0.weight"])


class GradientReport:
    def __init__(self, cfg, mesh):
        self.cfg, self.rows = cfg, []
        self.is_reporter = mesh["shard"].get_local_rank() == 0

    def histogram(self, grad):
        full = grad.full_tensor()
        return torch.histc(full.float(), bins=8).tolist()

    def on_backward_end(self, model, step):
        if step % self.cfg.report_every:
            return
        if self.is_reporter:
            grads = dict(model.named_parameters())
            for name in self.cfg.names:
                self.rows.append((step, name, self.histogram(grads[name].grad)))


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        self.mesh = init_device_mesh("cpu", cfg.shape, mesh_dim_names=("replicate", "shard"))
        blocks = [nn.Linear(cfg.width, cfg.width, bias=False) for _ in range(cfg.layers)]
        for block in blocks:
            fully_shard(block, mesh=self.mesh)
        self.model = fully_shard(nn.Sequential(*blocks), mesh=self.mesh)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.report = GradientReport(cfg, self.mesh)

    def step(self, step):
        x = torch.randn(4, self.cfg.width)
        self.model(x).pow(2).mean().backward()
        self.report.on_backward_end(self.model, step)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def fit(self):
        for step in range(1, self.cfg.steps + 1):
            self.step(step)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    Trainer(Config()).fit()
    dist.destroy_process_group()
