# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 6"
# outcome = "hang"
# causes_any = ["HD202"]
# culprits = [4]
# lines = [59, 89, 95, 96, 98, 102, 106]
# branch = ["torch.isfinite(hidden).all()", "not self.healthy(received)", "self.healthy(received)"]
# source = "https://github.com/NVIDIA/nccl/issues/2130"
# ///
"""Two pipelines of three stages with data parallel groups across them.

The middle stage of the second pipeline (rank 4) meets a non-finite activation, leaves the micro-batch out and goes on to the
next: the last stage still expects it.
"""
import logging
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import P2POp, batch_isend_irecv

log = logging.getLogger("pipe")


@dataclass
class PipeConfig:
    stages: int = 3
    micro_batches: int = 4
    micro_size: int = 2
    hidden: int = 12
    steps: int = 12
    clip: float = 1e4


class Mesh:
    def __init__(self, cfg):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.pipe, self.stage = divmod(self.rank, cfg.stages)
        self.first, self.last = self.stage == 0, self.stage == cfg.stages - 1
        self.dp_group = None
        for s in range(cfg.stages):
            group = dist.new_group([p * cfg.stages + s for p in range(self.world // cfg.stages)], timeout=timedelta(minutes=30))
            if s == self.stage:
                self.dp_group = group


class Channel:
    def __init__(self, mesh, shape):
        self.mesh, self.shape = mesh, shape

    def push(self, tensor):
        for work in batch_isend_irecv([P2POp(dist.isend, tensor.contiguous(), self.mesh.rank + 1)]):
            work.wait()

    def pull(self):
        buffer = torch.empty(self.shape)
        for work in batch_isend_irecv([P2POp(dist.irecv, buffer, self.mesh.rank - 1)]):
            work.wait()
        return buffer


class Stage(torch.nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.body = torch.nn.Linear(cfg.hidden, cfg.hidden)
        self.gain = torch.nn.Parameter(torch.ones(cfg.hidden))

    def forward(self, x):
        return torch.tanh(self.body(x)) * self.gain


class PipelineRunner:
    def __init__(self, cfg, mesh):
        self.cfg, self.mesh = cfg, mesh
        torch.manual_seed(mesh.stage)
        self.stage = Stage(cfg)
        self.channel = Channel(mesh, (cfg.micro_size, cfg.hidden))
        self.dropped = 0
        self.data = torch.Generator().manual_seed(100 + mesh.pipe)

    def source(self, step, micro):
        x = torch.randn(self.cfg.micro_size, self.cfg.hidden, generator=self.data)
        if self.mesh.pipe == 1 and (step, micro) == (5, 2):
            x[0, 3] = 7e4
        return x

    def healthy(self, hidden):
        return bool(torch.isfinite(hidden).all()) and bool(hidden.abs().max() < self.cfg.clip)

    def forward_micro(self, step, micro):
        if self.mesh.first:
            hidden = self.source(step, micro).half().float()
        else:
            received = self.channel.pull()
            if not self.healthy(received):
                self.dropped += 1
                return None
            hidden = self.stage(received)
        if self.mesh.last:
            return hidden.pow(2).mean()
        self.channel.push(hidden)
        return hidden

    def step(self, step):
        results = [self.forward_micro(step, m) for m in range(self.cfg.micro_batches)]
        done = [r for r in results if r is not None]
        grad = torch.stack([r.detach().mean() for r in done]).sum().reshape(1)
        dist.all_reduce(grad, group=self.mesh.dp_group)
        return float(grad)


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    cfg = PipeConfig()
    mesh = Mesh(cfg)
    runner = PipelineRunner(cfg, mesh)
    for step in range(cfg.steps):
        value = runner.step(step)
        if mesh.last:
            log.info("[pipe %d] step %d value %.4f dropped %d", mesh.pipe, step, value, runner.dropped)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
