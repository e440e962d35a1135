# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 6"
# outcome = "hang"
# causes_any = ["HD101", "HD109"]
# culprits_any = [[0, 1, 2], [3, 4, 5]]
# lines = [67, 74, 75, 97]
# branch = ["self.first_replica", "self.mesh.get_local_rank(\"replicate\") == 0", "self.plan.due(step) and self.first_replica"]
# source = "https://github.com/pytorch/torchtitan/issues/709"
# ///
"""HSDP (2 replicas x 3 shards) with torch.distributed.checkpoint: the replicas hold the same data, so only the first
one writes the sharded checkpoint."""
import logging
import os
import tempfile
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("hsdp")


@dataclass
class HsdpConfig:
    replicas: int = 2
    shards: int = 3
    width: int = 18
    steps: int = 24
    save_from: int = 8
    save_every: int = 8


@dataclass
class SavePlan:
    first: int
    every: int

    def due(self, step):
        return step >= self.first and (step - self.first) % self.every == 0


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Checkpointer:
    def __init__(self, model, optimizer, mesh, cfg, folder):
        self.model, self.optimizer, self.mesh = model, optimizer, mesh
        self.plan = SavePlan(cfg.save_from, cfg.save_every)
        self.folder = folder

    @property
    def first_replica(self):
        return self.mesh.get_local_rank("replicate") == 0

    def state(self, step):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "step": step}

    def maybe_save(self, step):
        if self.plan.due(step) and self.first_replica:
            dcp.save(self.state(step), checkpoint_id=os.path.join(self.folder, f"step-{step:06d}"))
            if dist.get_rank() == 0:
                log.info("saved step %d", step)


class HsdpTraining:
    def __init__(self, cfg, folder):
        self.cfg = cfg
        self.mesh = init_device_mesh("cpu", (cfg.replicas, cfg.shards), mesh_dim_names=("replicate", "shard"))
        torch.manual_seed(0)
        self.model = nn.Sequential(*(Mlp(cfg.width) for _ in range(2)), nn.Linear(cfg.width, 3))
        for layer in self.model[:2]:
            fully_shard(layer, mesh=self.mesh)
        fully_shard(self.model, mesh=self.mesh)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.checkpointer = Checkpointer(self.model, self.optimizer, self.mesh, cfg, folder)

    def fit(self):
        gen = torch.Generator().manual_seed(dist.get_rank())
        for step in range(1, self.cfg.steps + 1):
            x = torch.randn(4, self.cfg.width, generator=gen)
            loss = (self.model(x) - x[:, :3]).pow(2).mean()
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.checkpointer.maybe_save(step)
        total = torch.tensor([loss.item()])
        dist.all_reduce(total)
        log.info("end %.3f", total.item())


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    box = [tempfile.mkdtemp(prefix="hsdp-")]
    dist.broadcast_object_list(box, src=0)
    HsdpTraining(HsdpConfig(), box[0]).fit()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
