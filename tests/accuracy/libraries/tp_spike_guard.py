# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD109", "HD101"]
# culprits = [1]
# lines = [45, 57, 75, 86, 89, 96]
# branch = ["local.norm() > self.limit"]
# source = "own"
# ///
"""2-D mesh (dp x tp) with DTensor. The spike guard looks at the local shard of every gradient before anything was reduced: one (dp, tp)
position sees a spike and skips clipping and stepping, all others reduce over dp and clip over tp."""
import logging
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, Replicate, DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

log = logging.getLogger(__name__)


@dataclass
class RunConfig:
    width: int = 16
    hidden: int = 32
    seq: int = 8
    batch: int = 2
    steps: int = 200
    lr: float = 0.01
    max_norm: float = 1.0
    spike_limit: float = 320.0


class FeedForward(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.w_in = nn.Linear(cfg.width, cfg.hidden, bias=False)
        self.w_out = nn.Linear(cfg.hidden, cfg.width, bias=False)

    def forward(self, x):
        return self.w_out(F.relu(self.w_in(x)))


class SpikeGuard:
    """Throws away the gradients of a step that looks poisonous."""

    def __init__(self, limit):
        self.limit, self.dropped = limit, 0

    def spiked(self, params):
        for p in params:
            local = p.grad.to_local()
            if local.norm() > self.limit:
                self.dropped += 1
                return True
        return False


class MeshTrainer:
    def __init__(self, cfg, mesh):
        self.cfg, self.mesh = cfg, mesh
        torch.manual_seed(0)
        plan = {"w_in": ColwiseParallel(input_layouts=Shard(1)), "w_out": RowwiseParallel(output_layouts=Shard(1))}
        self.model = parallelize_module(FeedForward(cfg), mesh["tp"], plan)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=cfg.lr)
        self.guard = SpikeGuard(cfg.spike_limit)

    def reduce_over_dp(self, params):
        group = self.mesh.get_group("dp")
        for p in params:
            dist.all_reduce(p.grad.to_local(), group=group)
            p.grad.to_local().div_(self.mesh["dp"].size())

    def clip(self, params):
        total = torch.nn.utils.get_total_norm([p.grad for p in params])
        total = total.full_tensor() if isinstance(total, DTensor) else total
        torch.nn.utils.clip_grads_with_norm_(params, self.cfg.max_norm, total)
        return total

    def apply_gradients(self):
        params = [p for p in self.model.parameters() if p.grad is not None]
        if self.guard.spiked(params):
            self.optimizer.zero_grad()
            return None
        self.reduce_over_dp(params)
        norm = self.clip(params)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return norm

    def train_step(self, x, y):
        out = self.model(x)
        loss = F.mse_loss(out, y)
        loss.backward()
        return loss.detach(), self.apply_gradients()


class SensorStream:
    """Windows of a sensor; each data-parallel replica has a recorder of its own, each sequence shard half of the window."""

    def __init__(self, cfg, dp, tp):
        self.cfg, self.dp, self.tp = cfg, dp, tp
        self.gen = torch.Generator().manual_seed(7 + dp)

    def __iter__(self):
        half = self.cfg.seq // 2
        for index in range(self.cfg.steps):
            window = torch.randn(self.cfg.batch, self.cfg.seq, self.cfg.width, generator=self.gen)
            if self.dp == 0 and index == 9:
                window[:, -1] *= 40.0
            yield window[:, self.tp * half:(self.tp + 1) * half].contiguous()


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    cfg = RunConfig()
    mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("dp", "tp"))
    dp, tp = mesh["dp"].get_local_rank(), mesh["tp"].get_local_rank()
    trainer = MeshTrainer(cfg, mesh)
    for step, x in enumerate(SensorStream(cfg, dp, tp)):
        loss, norm = trainer.train_step(x, x.roll(1, dims=-1))
        if step % 3 == 0:
            log.info("dp %d tp %d step %d loss %.3f", dp, tp, step, loss.item())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
