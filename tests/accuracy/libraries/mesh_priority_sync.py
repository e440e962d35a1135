# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD107", "HD106"]
# culprits = [1, 2]
# culprits_any = [[0, 3], [0], [1], [2], [3], [0, 1, 2, 3]]
# lines = [73, 109, 71]
# source = "https://github.com/NVIDIA/apex/issues/19"
# ///
"""Trains a tensor-parallel block on a 2x2 mesh (data x tensor); after backward the gradient buckets of both mesh dimensions are reduced, most urgent first."""
import logging
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

log = logging.getLogger("mesh")


@dataclass
class Bucket:
    """Gradients that share a process group."""
    name: str
    params: list
    group: dist.ProcessGroup
    scale: float

    def flat(self):
        return torch.cat([p.grad.flatten() for p in self.params])

    def scatter(self, flat):
        offset = 0
        for p in self.params:
            p.grad.copy_(flat[offset:offset + p.numel()].view_as(p) * self.scale)
            offset += p.numel()

    def urgency(self):
        return float(self.flat().norm()) / len(self.params) ** 0.5


class GatedBlock(nn.Module):
    """A column-sharded projection plus layer norms that are replicated over the tensor dimension."""

    def __init__(self, dim, shard):
        super().__init__()
        self.norm_in = nn.LayerNorm(dim)
        self.norm_out = nn.LayerNorm(shard)
        self.proj = nn.Linear(dim, shard)
        self.gate = nn.Linear(dim, shard)

    def forward(self, x):
        x = self.norm_in(x)
        return self.norm_out(self.proj(x) * torch.sigmoid(self.gate(x)))


class GradientSync:
    """Reduces replicated parameters over the tensor dimension and everything else over the data dimension."""

    def __init__(self, model, mesh):
        norms = [p for n, p in model.named_parameters() if n.startswith("norm")]
        dense = [p for n, p in model.named_parameters() if not n.startswith("norm")]
        self.buckets = [
            Bucket("dense", dense, mesh.get_group("data"), 1 / mesh.size(0)),
            Bucket("norms", norms, mesh.get_group("tensor"), 1.0),
        ]

    def __call__(self):
        for bucket in sorted(self.buckets, key=lambda b: b.urgency(), reverse=True):
            flat = bucket.flat()
            dist.all_reduce(flat, group=bucket.group)
            bucket.scatter(flat)


class Corpus:
    """Columns of a table; a tensor shard regresses its own columns, some of them near constant."""

    def __init__(self, dp, tp, dim, shard):
        self.gen = torch.Generator().manual_seed(dp)
        self.offset = 6.0 if (dp + tp) % 2 else 0.0
        self.dim, self.shard = dim, shard

    def batch(self):
        x = torch.randn(32, self.dim, generator=self.gen)
        y = x[:, :self.shard] * 2 + self.offset
        return x, y


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO, format=f"[{rank}] %(message)s")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    dp, tp = mesh.get_local_rank("data"), mesh.get_local_rank("tensor")
    torch.manual_seed(tp)
    model = GatedBlock(16, 8)
    sync = GradientSync(model, mesh)
    corpus = Corpus(dp, tp, 16, 8)
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(40):
        x, y = corpus.batch()
        loss = nn.functional.mse_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        if step % 10 == 0:
            log.info("step %d loss %.3f urgency %s", step, loss.item(), {b.name: round(b.urgency(), 3) for b in sync.buckets})
        sync()
        opt.step()
    dist.barrier()
    log.info("final loss %.3f", loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
