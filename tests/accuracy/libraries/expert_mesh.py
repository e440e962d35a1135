# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD303", "HD109", "HD101"]
# culprits_any = [[3], [0, 1, 2]]
# lines = [78, 80, 105, 115, 121]
# branch = ["not any(spec.experts for spec in self.specs)", "spec.experts"]
# source = "https://github.com/pytorch/pytorch/pull/162571"
# ///
import json
import logging
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh

log = logging.getLogger("moe")

PLAN = json.loads(
    """
    {"layers": [
        {"name": "l0", "experts": 4}, {"name": "l1", "experts": 0},
        {"name": "l2", "experts": 4}, {"name": "l3", "experts": 0},
        {"name": "l4", "experts": 0}, {"name": "l5", "experts": 8},
        {"name": "l6", "experts": 0}, {"name": "l7", "experts": 0}
     ],
     "mesh": [2, 2]}
    """
)


@dataclass(frozen=True)
class LayerSpec:
    name: str
    experts: int


class Partition:
    def __init__(self, plan, world):
        self.layers = [LayerSpec(**d) for d in plan["layers"]]
        self.per_rank = len(self.layers) // world

    def slice(self, rank):
        return self.layers[rank * self.per_rank : (rank + 1) * self.per_rank]


class Dense(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.proj = nn.Linear(width, width)

    def forward(self, x):
        return torch.relu(self.proj(x))


class ExpertBank(nn.Module):
    def __init__(self, width, count):
        super().__init__()
        self.router = nn.Linear(width, count)
        self.experts = nn.ModuleList(Dense(width) for _ in range(count))

    def forward(self, x):
        weights = self.router(x).softmax(-1)
        return sum(w.unsqueeze(-1) * e(x) for w, e in zip(weights.unbind(-1), self.experts))


class StageBuilder:
    def __init__(self, specs, mesh_shape, width=16):
        self.specs = specs
        self.mesh_shape = tuple(mesh_shape)
        self.width = width

    def expert_groups(self):
        if not any(spec.experts for spec in self.specs):
            return None
        mesh = init_device_mesh("cpu", self.mesh_shape, mesh_dim_names=("edp", "ep"))
        return mesh["edp"].get_group()

    def build(self):
        mods = []
        for spec in self.specs:
            mods.append(ExpertBank(self.width, spec.experts) if spec.experts else Dense(self.width))
        return nn.Sequential(*mods)


class GradSync:
    def __init__(self, stage, expert_group):
        self.stage = stage
        self.expert_group = expert_group

    def __call__(self):
        for mod in self.stage:
            group = self.expert_group if isinstance(mod, ExpertBank) else None
            if group is None:
                continue
            for p in mod.parameters():
                dist.all_reduce(p.grad, group=group)

    def grad_norm(self):
        total = sum(p.grad.pow(2).sum() for p in self.stage.parameters())
        dist.all_reduce(total)
        return total.sqrt().item()


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo", timeout=timedelta(hours=1))
    rank, world = dist.get_rank(), dist.get_world_size()
    builder = StageBuilder(Partition(PLAN, world).slice(rank), PLAN["mesh"])
    stage = builder.build()
    sync = GradSync(stage, builder.expert_groups())
    opt = torch.optim.SGD(stage.parameters(), lr=1e-3)
    for step in range(20):
        opt.zero_grad()
        stage(torch.randn(8, 16)).pow(2).mean().backward()
        sync()
        norm = sync.grad_norm()
        opt.step()
        if rank == 0:
            log.info("step %d norm %.4f", step, norm)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
