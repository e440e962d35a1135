# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD109", "HD101", "HD106"]
# culprits = [0]
# lines = [54, 58, 62, 67, 70]
# branch = ["self.sink is None", "rank == 0"]
# source = "https://github.com/EleutherAI/bergson/pull/380"
# ///
"""FSDP2 training run that exports full Adam moments for attribution next to its own checkpoints."""
import logging
import os
import tempfile
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

log = logging.getLogger("attribution")


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, x):
        return x + self.mlp(self.norm(x))


def build_model(mesh, d=16, depth=2):
    torch.manual_seed(0)
    model = nn.Sequential(*[Block(d) for _ in range(depth)], nn.Linear(d, 4))
    for block in model[:-1]:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


class MomentExporter:
    """Writes exp_avg_sq of every parameter, unsharded, into one file per step."""

    def __init__(self, sink, every):
        self.sink, self.every = sink, every

    @classmethod
    def for_rank(cls, rank, root, every):
        return cls(Path(root) / "moments" if rank == 0 else None, every)

    @staticmethod
    def _full(value):
        return value.full_tensor() if isinstance(value, DTensor) else value

    def collect(self, model, opt):
        names = {p: n for n, p in model.named_parameters()}
        return {names[p]: self._full(s["exp_avg_sq"]) for p, s in opt.state.items()}

    def __call__(self, step, model, opt):
        if step % self.every:
            return
        if self.sink is None:
            return
        self.sink.mkdir(parents=True, exist_ok=True)
        torch.save(self.collect(model, opt), self.sink / f"{step:05d}.pt")


class Run:
    def __init__(self, rank, mesh, root):
        self.rank = rank
        self.model = build_model(mesh)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.hooks = [MomentExporter.for_rank(rank, root, every=15)]
        self.gen = torch.Generator().manual_seed(rank)

    def batch(self):
        x = torch.randn(8, 16, generator=self.gen)
        return x, (x.sum(-1) > 0).long()

    def step(self):
        x, y = self.batch()
        loss = nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        self.opt.step()
        self.opt.zero_grad()
        return loss

    def train(self, steps):
        for i in range(1, steps + 1):
            loss = self.step()
            for hook in self.hooks:
                hook(i, self.model, self.opt)
            if i % 15 == 0:
                dist.barrier()
            if i % 10 == 0:
                log.info("[%d] step %d loss %.4f", self.rank, i, loss.item())


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(hours=2))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    root = tempfile.mkdtemp(prefix="moments_%s_" % os.environ["MASTER_PORT"])
    Run(dist.get_rank(), mesh, root).train(60)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
